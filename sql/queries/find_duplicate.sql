-- find_duplicate: locks the job that this owner already has for the same content
-- Parameters: owner, sha256, mapping, bytes
-- Rows: one, or none: id, status, error_code, result_path
SELECT id, status, error_code, result_path
  FROM {schema}.jobs
 WHERE owner_session_id = %(owner)s AND sha256 = %(sha256)s AND mapping = %(mapping)s AND bytes = %(bytes)s
   FOR NO KEY UPDATE
