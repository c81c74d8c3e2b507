-- Takes every job with it.
DROP FUNCTION {{schema}}.ring(text);
DROP VIEW {{schema}}.all_jobs;
DROP TABLE {{schema}}.queues;
DROP TABLE {{schema}}.finished;
DROP TABLE {{schema}}.jobs;
DROP FUNCTION {{schema}}.bell();
