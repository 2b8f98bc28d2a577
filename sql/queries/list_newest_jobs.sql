-- list_newest_jobs: the newest in one status that must have their file, unless the result has expired
-- Parameters: status, limit
-- Rows: one per job: id, result_path
SELECT id, result_path
  FROM (SELECT id, result_path FROM {schema}.jobs
         WHERE status = %(status)s ORDER BY created_at DESC LIMIT %(limit)s) AS newest
 WHERE %(status)s <> 'complete' OR result_path IS NOT NULL
