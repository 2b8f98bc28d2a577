-- lock_leftover_sources: which of these jobs ended long ago and do not know of the source that lies there
-- Another program's rows may never have named it. The same rule as for those that do.
-- Parameters: ids, days (0: forever)
-- Rows: one per job: id
SELECT id FROM {schema}.jobs
 WHERE id = ANY (%(ids)s::uuid[]) AND upload_path IS NULL AND {schema}.is_terminal(status)
   AND greatest(completed_at, failed_at, cancelled_at, created_at)
       < now() - nullif(%(days)s, 0) * interval '1 day'
   FOR NO KEY UPDATE SKIP LOCKED
