-- trip_breaker: closed -> open, when too many of the last gateway calls failed
-- Reads the window only after a failure: a healthy gateway costs the breaker nothing.
-- Parameters: window, threshold, cooldown_ms
-- Rows: one when it opened: failures, calls
WITH calls AS MATERIALIZED (
    SELECT (event.meta ->> 'gateway_ok')::boolean AS ok
      FROM {schema}.job_events AS event
     WHERE event.meta ? 'gateway_ok' AND event.id > (SELECT window_after FROM {schema}.circuit_breaker)
     ORDER BY event.id DESC
     LIMIT %(window)s
), verdict AS (
    SELECT count(*) AS calls, count(*) FILTER (WHERE NOT ok) AS failures FROM calls
)
UPDATE {schema}.circuit_breaker
   SET state = 'open', by_hand = false, opened_at = now(),
       cooldown = %(cooldown_ms)s * interval '1 millisecond',
       probe_after = now() + %(cooldown_ms)s * interval '1 millisecond', probe_by = NULL, trial_job = NULL
  FROM verdict
 WHERE state = 'closed' AND calls >= ceil(%(window)s / 2.0)
     AND failures / nullif(calls, 0)::double precision >= %(threshold)s
RETURNING failures, calls
