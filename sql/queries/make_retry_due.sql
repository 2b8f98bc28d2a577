-- make_retry_due: queued -> queued, a job that waits for its retry or for its time may be claimed now
-- A job whose owner is paused, or has a limit that keeps it waiting, stays as it is.
-- Parameters: id
-- Rows: one, or none when it does not wait
WITH due AS (
    UPDATE {schema}.jobs SET retry_after = NULL, not_before = NULL
     WHERE id = %(id)s AND status = 'queued' AND retry_after IS NOT NULL AND NOT paused
       AND NOT over_cap
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'retry', '{"reason": "now", "from": "queued"}' FROM due
)
SELECT id FROM due
