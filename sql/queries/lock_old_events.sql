-- lock_old_events: events of finished jobs that have been kept for long enough, in one page of ids
-- The job is locked, not the event: one that is queued again at this moment keeps its history. What is not folded into
-- the counters yet stays, or the counters would lose it.
-- Parameters: days, after, upto
-- Rows: one per event: id, job_id, at
SELECT event.id, event.job_id, event.at
  FROM {schema}.job_events AS event JOIN {schema}.jobs AS job ON job.id = event.job_id
 WHERE event.id > %(after)s AND event.id <= %(upto)s
   AND event.at < now() - %(days)s * interval '1 day'
   AND job.status IN ('complete', 'failed') AND {schema}.is_folded(event.xact_id, event.id)
 ORDER BY event.id
   FOR SHARE OF job SKIP LOCKED
