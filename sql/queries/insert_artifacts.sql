-- insert_artifacts: records files that no job's row describes, in the transaction that makes a row name them
-- A completion whose commit was lost is repeated: the rows may be there already.
-- Parameters: artifacts (JSON array: job_id, kind, run, attempt, storage, path_or_key, bytes, sha256,
--   content_type)
-- Rows: none
INSERT INTO {schema}.job_artifacts
    (job_id, kind, run, attempt, storage, path_or_key, bytes, sha256, content_type)
SELECT job_id, kind, run, attempt, storage, path_or_key, bytes, sha256, content_type
  FROM jsonb_to_recordset(%(artifacts)s::jsonb) AS one (
           job_id uuid, kind text, run integer, attempt integer, storage text, path_or_key text, bytes bigint,
           sha256 text, content_type text)
ON CONFLICT (job_id, kind, run, attempt) DO UPDATE
   SET storage = excluded.storage, path_or_key = excluded.path_or_key, bytes = excluded.bytes,
       sha256 = excluded.sha256, content_type = excluded.content_type
