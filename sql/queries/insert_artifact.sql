-- insert_artifact: records a file that the job's row does not describe, in the completing transaction
-- A completion whose commit was lost is repeated: the row may be there already.
-- Parameters: id, kind, run, attempt, storage, path_or_key, bytes, sha256, content_type
-- Rows: none
INSERT INTO {schema}.job_artifacts
    (job_id, kind, run, attempt, storage, path_or_key, bytes, sha256, content_type)
VALUES (%(id)s, %(kind)s, %(run)s, %(attempt)s, %(storage)s, %(path_or_key)s, %(bytes)s, %(sha256)s,
        %(content_type)s)
ON CONFLICT (job_id, kind, run, attempt) DO UPDATE
   SET storage = excluded.storage, path_or_key = excluded.path_or_key, bytes = excluded.bytes,
       sha256 = excluded.sha256, content_type = excluded.content_type
