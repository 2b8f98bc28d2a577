-- find_failed_jobs: ids for a manual retry in bulk, oldest first
-- Parameters: error_code, owner, dead_only; null means any
-- Rows: one per job
SELECT id FROM {schema}.jobs
 WHERE status = 'failed'
   AND (%(error_code)s::text IS NULL OR error_code = %(error_code)s)
   AND (%(owner)s::text IS NULL OR owner_session_id = %(owner)s)
   AND (dead_letter OR NOT %(dead_only)s)
 ORDER BY created_at
