-- get_breaker: its state, and how the last gateway calls went
-- Parameters: window
-- Rows: one
WITH calls AS MATERIALIZED (
    SELECT (event.meta ->> 'gateway_ok')::boolean AS ok
      FROM {schema}.job_events AS event
     WHERE event.meta ? 'gateway_ok' AND event.id > (SELECT window_after FROM {schema}.circuit_breaker)
     ORDER BY event.id DESC
     LIMIT %(window)s
)
SELECT state, by_hand, opened_at, probe_by, trial_job,
       extract(epoch FROM probe_after - now())::double precision AS probe_seconds,
       extract(epoch FROM now() - opened_at)::double precision AS seconds,
       open_seconds + coalesce(extract(epoch FROM now() - opened_at), 0)::double precision
           AS open_seconds_total,
       (SELECT count(*) FROM calls) AS calls,
       (SELECT count(*) FROM calls WHERE NOT ok) AS failures
  FROM {schema}.circuit_breaker
