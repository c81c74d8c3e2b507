-- Takes every job with it.
DROP VIEW {{schema}}.all_jobs;
DROP TABLE {{schema}}.queues;
DROP TABLE {{schema}}.finished;
DROP TABLE {{schema}}.jobs;
DROP FUNCTION {{schema}}.bell();
DROP FUNCTION {{schema}}.ring(text, timestamptz);
