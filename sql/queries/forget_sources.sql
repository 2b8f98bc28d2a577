-- forget_sources: complete or failed stays so; the source is no longer there
-- A failed job says so in its timeline: it cannot be retried any more. For a complete one nothing changes
-- for its owner.
-- Parameters: ids (locked by lock_expired_sources)
-- Rows: one per job
WITH forgotten AS (
    UPDATE {schema}.jobs SET upload_path = NULL
     WHERE id = ANY (%(ids)s::uuid[]) AND {schema}.is_terminal(status)
    RETURNING id, status
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'expired', jsonb_build_object('reason', 'retention', 'which', 'source') FROM forgotten
      WHERE status = 'failed'
)
SELECT id FROM forgotten
