-- lock_expired_sources: finished jobs whose source has been kept for long enough, oldest first
-- Locked, so that a session that queues such a job again does so before (and it is not found) or after (and
-- sees it removed).
-- Parameters: days, after_at, after_id (the last of the batch before), limit
-- Rows: one per job: id, at, status
SELECT id, greatest(completed_at, failed_at, cancelled_at, created_at) AS at, status
  FROM {schema}.jobs
 WHERE upload_path IS NOT NULL AND {schema}.is_terminal(status)
   AND greatest(completed_at, failed_at, cancelled_at, created_at) < now() - %(days)s * interval '1 day'
   AND (greatest(completed_at, failed_at, cancelled_at, created_at), id) > (%(after_at)s, %(after_id)s)
 ORDER BY greatest(completed_at, failed_at, cancelled_at, created_at), id
 LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
