-- lock_expired_results: complete jobs whose result has expired, oldest first
-- Parameters: after_at, after_id (the last of the batch before), limit
-- Rows: one per job: id, at, status, result_path
SELECT id, expires_at AS at, status, result_path
  FROM {schema}.jobs
 WHERE result_path IS NOT NULL AND status = 'complete' AND expires_at < now()
   AND (expires_at, id) > (%(after_at)s, %(after_id)s)
 ORDER BY expires_at, id
 LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
