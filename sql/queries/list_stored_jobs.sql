-- list_stored_jobs: jobs that have files or may have a source that their row does not name, by id
-- Parameters: after_id (the last of the page before), limit
-- Rows: one per job: id, upload_path, result_path, sha256, bytes, run, attempt, mapping, pretty
SELECT id, upload_path, result_path, sha256, bytes, run, greatest(attempt_count, 1) AS attempt, mapping,
       pretty
  FROM {schema}.jobs
 WHERE id > %(after_id)s
   AND (upload_path IS NOT NULL OR result_path IS NOT NULL OR NOT {schema}.is_terminal(status))
 ORDER BY id
 LIMIT %(limit)s
