-- requeue_job: processing -> queued, requeued by its holder at shutdown; the attempt does not count
-- Parameters: id, holder, attempt, reason
-- Rows: one, or none when the lease is lost
WITH requeued AS (
    UPDATE {schema}.jobs
       SET status = 'queued', attempt_count = attempt_count - 1, retry_after = NULL,
           leased_by = NULL, lease_expires_at = NULL
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'requeued', jsonb_build_object(
               'worker', %(holder)s::text, 'attempt', %(attempt)s::int, 'reason', %(reason)s::text)
      FROM requeued
)
SELECT id FROM requeued
