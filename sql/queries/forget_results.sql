-- forget_results: complete stays so; the result has expired, and with it all that was made from it
-- Parameters: ids (locked by lock_expired_results)
-- Rows: one per job
WITH forgotten AS (
    UPDATE {schema}.jobs SET result_path = NULL
     WHERE id = ANY (%(ids)s::uuid[]) AND status = 'complete' AND result_path IS NOT NULL
    RETURNING id
), artifacts AS (
    DELETE FROM {schema}.job_artifacts WHERE job_id = ANY (%(ids)s::uuid[])
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'expired', jsonb_build_object('reason', 'retention', 'which', 'result') FROM forgotten
)
SELECT id FROM forgotten
