-- Bells always ring again, also of queues for which they were set never to.
-- Workers of version 3 and later have to be stopped before it.
CREATE OR REPLACE FUNCTION {{schema}}.bell() RETURNS trigger
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {{schema}}, pg_temp
AS $bell$
BEGIN
    -- A transaction that will be prepared for two-phase commit cannot notify.
    -- It says SET LOCAL fencepost.bell = off and leaves its jobs to polling.
    IF current_setting('fencepost.bell', true) IS DISTINCT FROM 'off' THEN
        PERFORM ring(queue, min(run_at)) FROM inserted GROUP BY queue;
    END IF;
    RETURN NULL;
END
$bell$;
CREATE OR REPLACE FUNCTION {{schema}}.ring(queue text, due timestamptz DEFAULT '-infinity') RETURNS void
    LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_catalog.pg_notify({{channel}}, '1:'
        || CASE WHEN due > clock_timestamp()
                -- No job is due later, and what is given by hand may be infinity.
                THEN (extract(epoch FROM least(due, '9999-12-31 23:59:59+00')) * 1000000)::bigint ELSE 0 END
        || ':' || queue)
    WHERE octet_length(queue) BETWEEN 1 AND 128 AND pg_notification_queue_usage() <= 0.5;
END;
DROP FUNCTION {{schema}}.hush(text, bigint);
DROP FUNCTION {{schema}}.promise(integer, bigint);
DROP FUNCTION {{schema}}.promised(integer);
DROP SEQUENCE {{schema}}.quiet_slots;
SET LOCAL fencepost.schema = {{channel}};
DO $quiet$
BEGIN
    FOR slot IN 0..63 LOOP
        EXECUTE format('DROP SEQUENCE %I.%I', current_setting('fencepost.schema'), 'quiet_' || to_char(slot, 'FM00'));
    END LOOP;
END
$quiet$;
ALTER TABLE {{schema}}.queues DROP COLUMN quiet_slot, DROP COLUMN bell;
