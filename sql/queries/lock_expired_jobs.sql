-- lock_expired_jobs: finished jobs that have been kept for long enough, in the order of their creation
-- jobs_by_status finds them, so the hot path pays for no index by age: who was created later ended later.
-- Parameters: status (a terminal one), days, after_at, after_id (the last of the batch before), limit
-- Rows: one per job: id, created_at, at (when it ended), attempt, holder (null)
SELECT id, created_at, greatest(completed_at, failed_at, cancelled_at, created_at) AS at,
       attempt_count AS attempt, leased_by AS holder
  FROM {schema}.jobs
 WHERE status = %(status)s AND created_at < now() - %(days)s * interval '1 day'
   AND greatest(completed_at, failed_at, cancelled_at, created_at) < now() - %(days)s * interval '1 day'
   AND (created_at, id) > (%(after_at)s, %(after_id)s)
 ORDER BY created_at, id
 LIMIT %(limit)s FOR UPDATE SKIP LOCKED
