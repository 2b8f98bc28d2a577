-- find_cancelled_jobs: ids for a manual retry in bulk, oldest first
-- Parameters: owner; null means any
-- Rows: one per job: id
SELECT id FROM {schema}.jobs
 WHERE status = 'cancelled' AND (%(owner)s::text IS NULL OR owner_session_id = %(owner)s)
 ORDER BY created_at, id
