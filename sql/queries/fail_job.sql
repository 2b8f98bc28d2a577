-- fail_job: processing -> failed, for its holder alone
-- Parameters: id, holder, attempt, run, dead_letter, error_code, error_message, gateway_ok, gateway_status,
--   gateway_ms, gateway (null: `default`, or no call), duration_ms
-- Rows: one, or none when the lease is lost
WITH failed AS (
    UPDATE {schema}.jobs
       SET status = 'failed', failed_at = now(), dead_letter = %(dead_letter)s,
           error_code = %(error_code)s, error_message = %(error_message)s,
           leased_by = NULL, lease_expires_at = NULL, retry_after = NULL
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s AND run = %(run)s
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'failed', jsonb_strip_nulls(jsonb_build_object(
               'worker', %(holder)s::text, 'attempt', %(attempt)s::int, 'duration_ms', %(duration_ms)s::int,
               'error_code', %(error_code)s::text, 'error_message', %(error_message)s::text,
               'gateway_ok', %(gateway_ok)s::boolean, 'gateway_status', %(gateway_status)s::int,
               'gateway_ms', %(gateway_ms)s::int, 'gateway', %(gateway)s::text))
      FROM failed
)
SELECT id FROM failed
