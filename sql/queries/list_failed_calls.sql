-- list_failed_calls: the last failed calls of a gateway, newest first, among those that its breaker weighs
-- Parameters: gateway, window, limit
-- Rows: one per call: at, job_id, error_code, error_message, gateway_status
SELECT at, job_id, meta ->> 'error_code' AS error_code, meta ->> 'error_message' AS error_message,
       meta -> 'gateway_status' AS gateway_status
  FROM (SELECT id, at, job_id, meta
          FROM (SELECT id, at, job_id, meta
                  FROM {schema}.job_events
                 WHERE meta ? 'gateway_ok' AND id > coalesce((
                     SELECT window_after FROM {schema}.circuit_breaker WHERE gateway = %(gateway)s), 0)
                 ORDER BY id DESC LIMIT 50000) AS newest
         WHERE coalesce(meta ->> 'gateway', 'default') = %(gateway)s
         ORDER BY id DESC LIMIT %(window)s) AS calls
 WHERE NOT (meta ->> 'gateway_ok')::boolean
 ORDER BY id DESC
 LIMIT %(limit)s
