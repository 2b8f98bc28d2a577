-- lock_leftover_results: which of these jobs ended without the result that lies there
-- A job that is not finished may still be completed from such a file, and is left alone.
-- Parameters: ids
-- Rows: one per job: id
SELECT id FROM {schema}.jobs
 WHERE id = ANY (%(ids)s::uuid[]) AND {schema}.is_terminal(status) AND result_path IS NULL
   FOR NO KEY UPDATE SKIP LOCKED
