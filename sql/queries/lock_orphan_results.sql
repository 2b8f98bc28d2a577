-- lock_orphan_results: which of these results no row names, of jobs that ended
-- A job that is not finished may still be completed from such a file, and is left alone. In a directory the
-- name of a result follows from the job's id; on object storage each attempt has another one.
-- Parameters: ids, locations (of the same length: a job and one of its results)
-- Rows: one per orphan: location
SELECT found.location
  FROM unnest(%(ids)s::uuid[], %(locations)s::text[]) AS found (id, location)
  JOIN {schema}.jobs AS job ON job.id = found.id
 WHERE {schema}.is_terminal(job.status)
   AND (job.result_path IS NULL OR found.location LIKE 's3://%%' AND job.result_path <> found.location)
   AND NOT EXISTS (SELECT FROM {schema}.job_artifacts AS artifact
                    WHERE artifact.job_id = job.id AND artifact.run = job.run
                      AND artifact.path_or_key = found.location)
   FOR NO KEY UPDATE OF job SKIP LOCKED
