-- insert_samples: keeps what was estimated for new jobs, until they are done
-- Parameters: samples (JSON array: job_id, run, estimated_at, done_by, median_seconds, late_seconds)
-- Rows: (none)
INSERT INTO {schema}.estimate_samples (job_id, run, estimated_at, done_by, median_seconds, late_seconds)
SELECT job_id, run, estimated_at, done_by, median_seconds, late_seconds
  FROM jsonb_to_recordset(%(samples)s::jsonb) AS sample (
           job_id uuid, run integer, estimated_at timestamptz, done_by timestamptz,
           median_seconds double precision, late_seconds double precision)
ON CONFLICT (job_id) DO UPDATE
   SET run = excluded.run, estimated_at = excluded.estimated_at, done_by = excluded.done_by,
       median_seconds = excluded.median_seconds, late_seconds = excluded.late_seconds
