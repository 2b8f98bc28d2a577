-- supports code from: 6
--
-- The files of a job that its row does not describe: a result on object storage, and what later steps make
-- of it.
--
-- A source is never a row here, because jobs has its size and hash. Neither is the result of a direct
-- conversion in a directory: jobs.result_path names it, and such a job costs no further row. Rows go with
-- their job (ON DELETE CASCADE), so that code which does not know this table can delete jobs.

CREATE TABLE {schema}.job_artifacts (
    job_id uuid NOT NULL REFERENCES {schema}.jobs ON DELETE CASCADE,
    kind text NOT NULL CONSTRAINT artifact_kind_is_known CHECK (kind IN ('result', 'extraction', 'revision')),
    run integer NOT NULL CONSTRAINT run_counts_from_one CHECK (run >= 1),
    attempt integer NOT NULL CONSTRAINT attempt_counts_from_one CHECK (attempt >= 1),
    storage text NOT NULL CONSTRAINT storage_is_known CHECK (storage IN ('local', 's3')),
    path_or_key text NOT NULL CONSTRAINT path_or_key_is_not_empty CHECK (path_or_key <> ''),
    bytes bigint CONSTRAINT artifact_is_not_empty CHECK (bytes > 0),
    sha256 character(64) CONSTRAINT artifact_sha256_is_hexadecimal CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    content_type text NOT NULL DEFAULT 'application/xml',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, kind, run, attempt)
);

-- Every file of a job, wherever it is. The size and the hash of a result in a directory are not recorded.
CREATE VIEW {schema}.artifacts AS
SELECT id AS job_id, 'source' AS kind, NULL::integer AS run, NULL::integer AS attempt,
       CASE WHEN upload_path LIKE 's3://%' THEN 's3' ELSE 'local' END AS storage, upload_path AS path_or_key,
       bytes, sha256, content_type, created_at
  FROM {schema}.jobs WHERE upload_path IS NOT NULL
UNION ALL
SELECT id, 'result', run, attempt_count, CASE WHEN result_path LIKE 's3://%' THEN 's3' ELSE 'local' END,
       result_path, NULL, NULL, 'application/xml', completed_at
  FROM {schema}.jobs AS job
 WHERE result_path IS NOT NULL
   AND NOT EXISTS (SELECT FROM {schema}.job_artifacts AS artifact
                    WHERE artifact.job_id = job.id AND artifact.path_or_key = job.result_path)
UNION ALL
SELECT job_id, kind, run, attempt, storage, path_or_key, bytes, sha256, content_type, created_at
  FROM {schema}.job_artifacts;
