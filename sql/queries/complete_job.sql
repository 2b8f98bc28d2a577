-- complete_job: processing -> complete, for its holder alone
-- gateway_ok is null when the attempt made no call (a leftover result): only calls count for the breaker.
-- Parameters: id, holder, attempt, result_path, retention_days (0: for ever), gateway_ok, gateway_status, gateway_ms, duration_ms
-- Rows: one, or none when the lease is lost
WITH done AS (
    UPDATE {schema}.jobs
       SET status = 'complete', result_path = %(result_path)s, completed_at = now(),
           expires_at = now() + nullif(%(retention_days)s, 0) * interval '1 day',
           leased_by = NULL, lease_expires_at = NULL, retry_after = NULL
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'complete', jsonb_strip_nulls(jsonb_build_object(
               'worker', %(holder)s::text, 'attempt', %(attempt)s::int, 'duration_ms', %(duration_ms)s::int,
               'gateway_ok', %(gateway_ok)s::boolean, 'gateway_status', %(gateway_status)s::int,
               'gateway_ms', %(gateway_ms)s::int))
      FROM done
)
SELECT id FROM done
