-- list_artifacts: every file of one job that the rows know of, the source first
-- Parameters: id
-- Rows: one per file: kind, run, attempt, storage, path_or_key, bytes, sha256, content_type, created_at
SELECT kind, run, attempt, storage, path_or_key, bytes, sha256, content_type, created_at
  FROM {schema}.artifacts
 WHERE job_id = %(id)s
 ORDER BY kind <> 'source', run, attempt, created_at
