-- find_active_jobs: unfinished jobs for a cancel in bulk, oldest first
-- Parameters: statuses, owner, mapping; null means any owner, any mapping
-- Rows: one per job: id
SELECT id FROM {schema}.jobs
 WHERE status = ANY (%(statuses)s::text[])
   AND (%(owner)s::text IS NULL OR owner_session_id = %(owner)s)
   AND (%(mapping)s::text IS NULL OR mapping = %(mapping)s)
 ORDER BY created_at, id
