-- Queues that are paused go on. Workers of version 2 and later have to be
-- stopped before it.
DROP FUNCTION {{schema}}.enqueue(text, jsonb, text, integer, timestamptz, integer);
DROP FUNCTION {{schema}}.recall(text);
DROP TABLE {{schema}}.workers;
DROP SEQUENCE {{schema}}.worker_keys;
ALTER TABLE {{schema}}.queues DROP COLUMN paused_at;
