-- list_sample: a few jobs as a preview of a change in bulk shows them, oldest first
-- Parameters: ids
-- Rows: one per job that exists
SELECT id, status, owner_session_id, original_filename, mapping, error_code, created_at
  FROM {schema}.jobs
 WHERE id = ANY (%(ids)s::uuid[])
 ORDER BY created_at, id
