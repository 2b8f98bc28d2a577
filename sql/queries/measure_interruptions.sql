-- measure_interruptions: how often, and for how long, each gateway was down or paused within the last day
-- Parameters: pause (s until the next measurement)
-- Rows: (none)
WITH event AS MATERIALIZED (
    SELECT id, event_type, at, meta FROM {schema}.queue_events ORDER BY id DESC LIMIT 1000
), ended AS (
    SELECT meta ->> 'gateway' AS gateway,
           CASE jsonb_typeof(meta -> 'open_seconds')
               WHEN 'number' THEN (meta ->> 'open_seconds')::double precision END AS seconds
      FROM event WHERE event_type = 'breaker_closed' AND at > now() - interval '1 day'
    UNION ALL
    SELECT meta ->> 'gateway', extract(epoch FROM at - (
               SELECT max(began.at) FROM event AS began
                WHERE began.event_type = 'paused' AND began.id < event.id
                  AND began.meta ->> 'gateway' IS NOT DISTINCT FROM event.meta ->> 'gateway'
                  AND NOT began.meta ? 'owner'))
      FROM event WHERE event_type = 'resumed' AND at > now() - interval '1 day' AND NOT meta ? 'owner'
), counted AS (
    SELECT breaker.gateway, count(*) AS number, sum(ended.seconds) AS seconds
      FROM {schema}.circuit_breaker AS breaker
      JOIN ended ON ended.seconds > 0 AND (ended.gateway IS NULL OR ended.gateway = breaker.gateway)
     GROUP BY 1
)
UPDATE {schema}.estimate_state
   SET history_due_at = now() + make_interval(secs => %(pause)s),
       interruptions = coalesce((
           SELECT jsonb_object_agg(gateway, jsonb_build_object('number', number, 'seconds', seconds))
             FROM counted), '{}')
