-- schedule_retry: processing -> queued, not before retry_after, for its holder alone
-- From now, not from the beginning of a transaction that had to wait for the breaker's lock.
-- Parameters: id, holder, attempt, run, delay_ms, error_code, error_message, gateway_ok, gateway_status,
--   gateway_ms, gateway (null: `default`, or no call), duration_ms
-- Rows: one, or none when the lease is lost
WITH returned AS (
    UPDATE {schema}.jobs
       SET status = 'queued', retry_after = clock_timestamp() + %(delay_ms)s * interval '1 millisecond',
           leased_by = NULL, lease_expires_at = NULL
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s AND run = %(run)s
    RETURNING id, retry_after
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'retry', jsonb_strip_nulls(jsonb_build_object(
               'worker', %(holder)s::text, 'attempt', %(attempt)s::int, 'duration_ms', %(duration_ms)s::int,
               'error_code', %(error_code)s::text, 'error_message', %(error_message)s::text,
               'gateway_ok', %(gateway_ok)s::boolean, 'gateway_status', %(gateway_status)s::int,
               'gateway_ms', %(gateway_ms)s::int, 'gateway', %(gateway)s::text, 'retry_after', retry_after))
      FROM returned
)
SELECT id, retry_after FROM returned
