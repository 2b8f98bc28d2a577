-- requeue_job: processing -> queued, by its holder (shutdown, busy gateway); the attempt does not count
-- Parameters: id, holder, attempt, run, reason, delay_ms (0: none), gateway_status, gateway (null: `default`,
--   or no call)
-- Rows: one, or none when the lease is lost
WITH requeued AS (
    UPDATE {schema}.jobs
       SET status = 'queued', attempt_count = attempt_count - 1,
           retry_after = clock_timestamp() + nullif(%(delay_ms)s, 0) * interval '1 millisecond',
           leased_by = NULL, lease_expires_at = NULL
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s AND run = %(run)s
    RETURNING id, retry_after
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'requeued', jsonb_strip_nulls(jsonb_build_object(
               'worker', %(holder)s::text, 'attempt', %(attempt)s::int, 'reason', %(reason)s::text,
               'retry_after', retry_after, 'gateway_status', %(gateway_status)s::int,
               'gateway', %(gateway)s::text))
      FROM requeued
)
SELECT id FROM requeued
