-- Migration 004: claims that touch no index.
-- oldest code: 1
--
-- An UPDATE that changes no column of an index, and whose new row fits on the
-- page of the old one, leaves all indexes alone. So a claim changes nothing
-- that an index knows: jobs that run stay where they were in the order of
-- claims, which steps over them, and leases that are over are found by the table
-- claims.
--
-- Programs of versions 1 to 3 run on it. They write no row into claims: who knows
-- this version looks for what they hold in the whole table, every now and then.
-- Their own ticks read the whole table each time.
--
-- While the new index is built, about a second for each million of live jobs,
-- everybody else waits: enqueues, claims and outcomes too. Unless it is there
-- already: see below.

-- One row for each claim that may still have a running job. It only says where
-- to look, and when: what a job's lease is, and whose it is, is in its own row.
-- Every running job is in the row of its claim, which is written by the same
-- statement, and no lease ends before look_at: until then nobody need look.
--
-- Not in jobs, where a claim would have to change an index. And not in workers:
-- the jobs of one that has died are found by the ids of its claims.
CREATE TABLE {{schema}}.claims (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    look_at   timestamptz NOT NULL,
    worker_id text        NOT NULL,
    ids       bigint[]    NOT NULL
);
-- Beside the row when there are many, and not compressed: each tick reads all rows,
-- also those of closed claims that somebody's old snapshot keeps, and few of their
-- ids.
ALTER TABLE {{schema}}.claims ALTER COLUMN ids SET STORAGE EXTERNAL;

SET LOCAL fencepost.schema = {{channel}};

-- An index that was built before, and is not usable or another one, would be taken
-- as it is below, and each claim would read the whole table.
DO $order$
BEGIN
    IF EXISTS (
        SELECT FROM pg_index AS i
        WHERE i.indexrelid = to_regclass(format('%I.jobs_order', current_setting('fencepost.schema')))
          AND NOT (i.indisvalid AND pg_get_indexdef(i.indexrelid) LIKE '% USING btree (queue, priority, run_at, id)')
    ) THEN
        RAISE 'the index jobs_order is there, and it is not valid or not the one that is needed: DROP it, and build it again or leave that to the migration';
    END IF;
END
$order$;

-- Who works may write into claims too, or would claim nothing from now on: whoever
-- may change jobs. That is its owner as well, who need not be the one that migrates.
DO $rights$
DECLARE
    worker text;
BEGIN
    FOR worker IN
        SELECT DISTINCT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        -- Where nothing was granted yet, only the owner may.
        FROM pg_class AS c CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
        WHERE c.oid = format('%I.jobs', current_setting('fencepost.schema'))::regclass AND a.privilege_type = 'UPDATE'
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.claims TO %s', current_setting('fencepost.schema'), worker);
    END LOOP;
END
$rights$;

-- Known to others as one that writes into claims.
ALTER TABLE {{schema}}.workers ADD COLUMN writes_claims boolean NOT NULL DEFAULT false;

-- Once and for all that follows, or somebody who has read the table and waits to
-- write into it would wait for us, and we for him.
LOCK TABLE {{schema}}.jobs IN ACCESS EXCLUSIVE MODE;
-- What runs at this moment, while there is an index by which it is found.
INSERT INTO {{schema}}.claims (look_at, worker_id, ids)
SELECT min(r.lease_until), r.worker_id, array_agg(r.id)
FROM (SELECT j.id, j.worker_id, j.lease_until,
             (row_number() OVER (PARTITION BY j.worker_id ORDER BY j.id) - 1) / 500 AS part
      FROM {{schema}}.jobs AS j WHERE j.status = 'running') AS r
GROUP BY r.worker_id, r.part;
DROP INDEX {{schema}}.jobs_ready;
DROP INDEX {{schema}}.jobs_running;
-- The order in which jobs are claimed. Of all jobs: with a condition on status,
-- each claim would have to take its jobs out of the index. Who has many jobs has
-- built it before, by CREATE INDEX CONCURRENTLY, so that nobody waits.
CREATE INDEX IF NOT EXISTS jobs_order ON {{schema}}.jobs (queue, priority, run_at, id);
-- Room on each page for the rows that claims make of those that are there.
ALTER TABLE {{schema}}.jobs SET (fillfactor = 50);
