-- Migration 003: bells that can be silent.
-- oldest code: 1
--
-- Programs of versions 1 and 2 run on it. They hear bells as before, in which
-- a number that was 0 is one that they read as a time in the past, and promise
-- nothing.
--
-- Nothing here touches a row of jobs or finished. What changes a table that is
-- in use comes last, so that its lock is held for a moment only.

-- The promises, one sequence for each queue that has a slot: until when, in
-- microseconds since 1970 by this server's clock, somebody looks into that queue
-- every few milliseconds; 0: nobody does, and all that was silent has been
-- looked for. The bell of such a queue may be silent meanwhile: a commit with a
-- notification in it holds a lock of the whole server while it is flushed.
--
-- Sequences, because a value that is set is seen at once by everybody, by
-- transactions with an old snapshot too, and because they leave no dead rows.
-- Unlogged where the server can: what a crash loses is a promise, and its end.
--
-- The schema's name is handed over in a setting: it might contain the quotes of
-- the block.
SET LOCAL fencepost.schema = {{channel}};
DO $quiet$
BEGIN
    FOR slot IN 0..63 LOOP
        EXECUTE format('CREATE %s SEQUENCE %I.%I AS bigint MINVALUE 0 START 0',
            CASE WHEN current_setting('server_version_num')::integer >= 150000 THEN 'UNLOGGED' END,
            current_setting('fencepost.schema'), 'quiet_' || to_char(slot, 'FM00'));
    END LOOP;
END
$quiet$;

-- Which slots were given out. None is given a second time, even when its row is
-- gone: a transaction with an old snapshot may still take it for its queue's,
-- and would believe what is promised for another. When there is none left, the
-- bells of further queues always ring.
CREATE SEQUENCE {{schema}}.quiet_slots AS smallint MINVALUE 0 MAXVALUE 63 START 0;

-- What is promised for a slot; null: nothing, since the server's start.
CREATE FUNCTION {{schema}}.promised(slot integer) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {{schema}}, pg_temp
AS $promised$ SELECT pg_sequence_last_value(('quiet_' || to_char(slot, 'FM00'))::regclass) $promised$;

-- Promises, or with 0 revokes. Not for everybody: who does not keep a promise
-- makes jobs wait.
CREATE FUNCTION {{schema}}.promise(slot integer, until bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {{schema}}, pg_temp
AS $promise$ SELECT setval(('quiet_' || to_char(slot, 'FM00'))::regclass, until) $promise$;
REVOKE ALL ON FUNCTION {{schema}}.promise(integer, bigint) FROM PUBLIC;

-- Tells the other processes what is promised for a queue, so that one of them
-- looks when that time has passed and nothing more was heard. On the channel of
-- the bells, in a form that older programs pass over.
CREATE FUNCTION {{schema}}.hush(queue text, until bigint) RETURNS void
    LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_catalog.pg_notify({{channel}}, 'quiet:' || until || ':' || queue)
    WHERE until > 0 AND octet_length(queue) BETWEEN 1 AND 128 AND pg_notification_queue_usage() <= 0.5;
END;

-- As before, but for a job that is due now the bell says, in place of 0, which
-- transaction rings: a small number, where a time is one of more than 9·10^14
-- (the year 2000). So a process that has looked since, with a snapshot in which
-- that transaction is over, can tell that it need not look again.
CREATE OR REPLACE FUNCTION {{schema}}.ring(queue text, due timestamptz DEFAULT '-infinity') RETURNS void
    LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_catalog.pg_notify({{channel}}, '1:'
        || CASE WHEN due > clock_timestamp()
                -- No job is due later, and what is given by hand may be infinity.
                THEN (extract(epoch FROM least(due, '9999-12-31 23:59:59+00')) * 1000000)::bigint::text
                ELSE pg_current_xact_id()::text END
        || ':' || queue)
    WHERE octet_length(queue) BETWEEN 1 AND 128 AND pg_notification_queue_usage() <= 0.5;
END;

-- One bell per queue and INSERT statement, for its earliest job; or none, when
-- somebody has promised to look and everything that the promise needs is given.
-- Whatever is in doubt, it rings.
--
-- Who falls asleep revokes his promise, waits until nobody holds the lock of
-- the slot, and looks once more. So whoever is silent must hold that lock until
-- his transaction ends, and must have read the promise after he got it. The
-- read before that costs little, and keeps everybody else from the lock.
--
-- No snapshot decides: that of a REPEATABLE READ transaction may be older than
-- the promise, or its end.
CREATE OR REPLACE FUNCTION {{schema}}.bell() RETURNS trigger
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {{schema}}, pg_temp
AS $bell$
DECLARE
    first    text;     -- the queue of one of the new jobs; null: there is none
    mode     text;     -- its queues.bell
    slot     integer;  -- its queues.quiet_slot
    class    integer;  -- of the locks of slots
    promised regclass; -- the sequence of its slot
BEGIN
    -- A transaction that will be prepared for two-phase commit cannot notify.
    -- It says SET LOCAL fencepost.bell = off and leaves its jobs to polling.
    IF current_setting('fencepost.bell', true) = 'off' THEN
        RETURN NULL;
    END IF;
    -- Several small statements, with the short way out first: one that groups
    -- all rows and joins the queue's row was measured to cost twice as much.
    SELECT i.queue INTO first FROM inserted AS i LIMIT 1;
    IF first IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT q.bell, q.quiet_slot, q.tableoid::integer INTO mode, slot, class FROM queues AS q WHERE q.name = first;
    IF slot IS NOT NULL AND mode = 'auto' THEN
        promised := ('quiet_' || to_char(slot, 'FM00'))::regclass;
        -- Three seconds: a promise is for two, and one that lies further ahead is
        -- from another clock.
        IF pg_sequence_last_value(promised) - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint BETWEEN 0 AND 3000000 THEN
            -- The promise is for one queue. And who looks often does not look at
            -- jobs that are dated back: a bell makes him.
            PERFORM FROM inserted AS i
            WHERE i.queue <> first OR i.run_at < clock_timestamp() - interval '200 milliseconds'
            LIMIT 1;
            IF NOT FOUND AND pg_try_advisory_xact_lock_shared(class, slot) THEN
                IF pg_sequence_last_value(promised) - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint BETWEEN 0 AND 3000000 THEN
                    RETURN NULL;
                END IF;
            END IF;
        END IF;
    END IF;
    PERFORM ring(g.queue, g.due)
    FROM (SELECT i.queue, min(i.run_at) AS due FROM inserted AS i GROUP BY i.queue) AS g
    WHERE NOT EXISTS (SELECT FROM queues AS q WHERE q.name = g.queue AND q.bell = 'never');
    RETURN NULL;
END
$bell$;

ALTER TABLE {{schema}}.queues
    -- Whether an INSERT rings: auto, unless it is promised that somebody looks;
    -- always; or never, and then its jobs wait for polling.
    ADD COLUMN bell text NOT NULL DEFAULT 'auto',
    -- Null: it has none yet, and always rings.
    ADD COLUMN quiet_slot smallint,
    ADD CONSTRAINT queues_bell CHECK (bell IN ('auto', 'always', 'never')),
    ADD CONSTRAINT queues_quiet_slot CHECK (quiet_slot BETWEEN 0 AND 63),
    ADD CONSTRAINT queues_quiet_slot_key UNIQUE (quiet_slot);
