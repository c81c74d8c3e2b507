-- Workers of version 4 and later have to be stopped before it.
LOCK TABLE {{schema}}.jobs IN ACCESS EXCLUSIVE MODE;
DROP INDEX {{schema}}.jobs_order;
CREATE INDEX jobs_ready ON {{schema}}.jobs (queue, priority, run_at, id) WHERE status = 'ready';
CREATE INDEX jobs_running ON {{schema}}.jobs (lease_until) WHERE status = 'running';
ALTER TABLE {{schema}}.jobs RESET (fillfactor);
ALTER TABLE {{schema}}.workers DROP COLUMN writes_claims;
DROP TABLE {{schema}}.claims;
