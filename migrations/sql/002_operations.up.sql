-- Migration 002: who works, pause, and a way in for producers.
-- oldest code: 1
--
-- Programs of version 1 run on it: they know no pause, write no row into
-- workers, and their jobs come back when their lease is over.
--
-- Nothing here touches a row of jobs or finished. What changes a table that is
-- in use comes last, so that its lock is held for a moment only.

-- Keys of session-level advisory locks, one for each connection that stands
-- for a process. None is given twice within two billion.
CREATE SEQUENCE {{schema}}.worker_keys AS integer CYCLE;

-- One row for each process that works. It is written at the start, when the
-- connection was made again, and at the end, never as a heartbeat: a row that
-- is renewed each second becomes slow to find under somebody's old snapshot.
-- That the process lives is told by a lock instead, which its connection holds
-- and which ends with it.
CREATE TABLE {{schema}}.workers (
    worker_id    text        PRIMARY KEY,
    -- The lock: class is the oid of this table, as an integer, and this is the
    -- key. Null where a pooler shares connections, or the lock could not be
    -- had: then only leases tell.
    lock_key     integer,
    -- When the server started on which the lock was taken. If that is not this
    -- server's, the process has not come back since a restart or a failover.
    server_start timestamptz,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    written_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    version      text        NOT NULL DEFAULT '',
    -- Each queue with the number of its slots there.
    queues       jsonb       NOT NULL DEFAULT '{}',
    -- Null: every kind.
    kinds        text[],
    CONSTRAINT workers_id CHECK (octet_length(worker_id) BETWEEN 1 AND 128),
    CONSTRAINT workers_lock CHECK ((lock_key IS NULL) = (server_start IS NULL)),
    -- What a client could not read would spoil each list that it is in.
    CONSTRAINT workers_times CHECK (isfinite(started_at) AND isfinite(written_at) AND isfinite(server_start))
);

-- Tells the worker of that id to look whether its jobs are still its own: some
-- were cancelled, released or deleted. On the channel of the bells, in a form
-- that programs of version 1 pass over.
CREATE FUNCTION {{schema}}.recall(worker text) RETURNS void
    LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_catalog.pg_notify({{channel}}, 'recall:' || worker)
    WHERE octet_length(worker) BETWEEN 1 AND 128 AND pg_notification_queue_usage() <= 0.5;
END;

-- A way to enqueue for roles that have no right on the table: it runs with its
-- owner's rights, and who may call it has to be granted. Returns the job's id.
-- Its names were looked up when it was created, so that no search_path matters,
-- and are pinned all the same.
CREATE FUNCTION {{schema}}.enqueue(
    kind         text,
    payload      jsonb       DEFAULT '{}',
    queue        text        DEFAULT 'default',
    priority     integer     DEFAULT 0,
    run_at       timestamptz DEFAULT NULL, -- null: at once
    max_attempts integer     DEFAULT 20
) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO {{schema}}.jobs (kind, payload, queue, priority, run_at, max_attempts)
    VALUES (enqueue.kind, enqueue.payload, enqueue.queue, enqueue.priority,
            coalesce(enqueue.run_at, clock_timestamp()), enqueue.max_attempts)
    RETURNING id;
END;
REVOKE ALL ON FUNCTION {{schema}}.enqueue(text, jsonb, text, integer, timestamptz, integer) FROM PUBLIC;

-- Set: nobody claims from the queue. What runs goes on.
ALTER TABLE {{schema}}.queues
    ADD COLUMN paused_at timestamptz,
    ADD CONSTRAINT queues_paused_at CHECK (isfinite(paused_at));
