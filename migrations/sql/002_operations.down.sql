DROP FUNCTION {{schema}}.enqueue(text, jsonb, text, integer, timestamptz, integer);
DROP FUNCTION {{schema}}.recall(text);
ALTER TABLE {{schema}}.queues DROP COLUMN paused_at;
DROP TABLE {{schema}}.workers;
DROP SEQUENCE {{schema}}.worker_keys;
