-- trip_breaker: closed -> open, when too many of the last calls of a gateway failed
-- Reads the window only after a failure: a healthy gateway costs the breaker nothing. An event without the
-- name of a gateway is of `default`. Where other gateways are called far more often, at most 50,000 calls
-- are read.
-- Parameters: gateway, window, threshold, cooldown_ms
-- Rows: one when it opened: failures, calls
WITH calls AS MATERIALIZED (
    SELECT ok
      FROM (SELECT event.id, (event.meta ->> 'gateway_ok')::boolean AS ok,
                   coalesce(event.meta ->> 'gateway', 'default') AS gateway
              FROM {schema}.job_events AS event
             WHERE event.meta ? 'gateway_ok'
               AND event.id > (SELECT window_after FROM {schema}.circuit_breaker WHERE gateway = %(gateway)s)
             ORDER BY event.id DESC LIMIT 50000) AS newest
     WHERE gateway = %(gateway)s
     ORDER BY id DESC LIMIT %(window)s
), verdict AS (
    SELECT count(*) AS calls, count(*) FILTER (WHERE NOT ok) AS failures FROM calls
)
UPDATE {schema}.circuit_breaker
   SET state = 'open', by_hand = false, opened_at = now(),
       cooldown = %(cooldown_ms)s * interval '1 millisecond',
       probe_after = now() + %(cooldown_ms)s * interval '1 millisecond', probe_by = NULL, trial_job = NULL
  FROM verdict
 WHERE gateway = %(gateway)s AND state = 'closed' AND calls >= ceil(%(window)s / 2.0)
     AND failures / nullif(calls, 0)::double precision >= %(threshold)s
RETURNING failures, calls
