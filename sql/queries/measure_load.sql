-- measure_load: what waits and runs at each gateway, how long a job takes, and whether it may be called
-- A retry that becomes due soon counts as waiting. Jobs of paused owners are in no count: nobody can claim
-- them. Another program may have written anything as the duration of an attempt: it is not counted.
-- Parameters: soon (s), counted (jobs at most, of each gateway), calls (measured, at most)
-- Rows: one per gateway: gateway, breaker, is_paused, max_calls (null: no limit), running, queued,
--   seconds (mean; null: not measured), has_paused_jobs
WITH measured AS MATERIALIZED (
    SELECT coalesce(meta ->> 'gateway', 'default') AS gateway,
           avg(CASE jsonb_typeof(meta -> 'duration_ms') WHEN 'number'
                    THEN (meta ->> 'duration_ms')::double precision / 1000 END) AS seconds
      FROM (SELECT meta FROM {schema}.job_events
             WHERE meta ? 'gateway_ok' ORDER BY id DESC LIMIT %(calls)s) AS last
     GROUP BY 1
), running AS MATERIALIZED (
    SELECT route, count(*) AS number FROM {schema}.jobs WHERE status = 'processing' GROUP BY route
), due_soon AS MATERIALIZED (
    SELECT route, count(*) AS number
      FROM (SELECT route FROM {schema}.jobs
             WHERE status = 'queued' AND retry_after <= now() + make_interval(secs => %(soon)s)
             LIMIT %(counted)s) AS found
     GROUP BY route
)
SELECT breaker.gateway, breaker.state AS breaker, breaker.max_calls, measured.seconds,
       EXISTS (SELECT FROM {schema}.pauses
                WHERE owner IS NULL AND coalesce(pauses.gateway, breaker.gateway) = breaker.gateway)
           AS is_paused,
       coalesce(running.number, 0) AS running,
       coalesce(due_soon.number, 0) + (
           SELECT count(*) FROM (SELECT FROM {schema}.jobs
                                  WHERE status = 'queued' AND retry_after IS NULL AND route = breaker.gateway
                                  LIMIT %(counted)s) AS found) AS queued,
       EXISTS (SELECT FROM {schema}.jobs
                WHERE paused AND status = 'queued' AND route = breaker.gateway) AS has_paused_jobs
  FROM {schema}.circuit_breaker AS breaker
  LEFT JOIN measured ON measured.gateway = breaker.gateway
  LEFT JOIN running ON running.route = breaker.gateway
  LEFT JOIN due_soon ON due_soon.route = breaker.gateway
 ORDER BY breaker.gateway
