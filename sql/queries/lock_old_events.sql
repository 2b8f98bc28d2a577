-- lock_old_events: events of finished jobs that have been kept for long enough, in one page of ids
-- The job is locked, not the event: a job that is queued again at the same time keeps its history. An event
-- that is not aggregated into the counters yet stays, or the counters would lose it.
-- Parameters: days, after, upto
-- Rows: one per event: id, job_id, at
SELECT event.id, event.job_id, event.at
  FROM {schema}.job_events AS event JOIN {schema}.jobs AS job ON job.id = event.job_id
 WHERE event.id > %(after)s AND event.id <= %(upto)s
   AND event.at < now() - %(days)s * interval '1 day'
   AND {schema}.is_terminal(job.status) AND {schema}.is_aggregated(event.xact_id, event.id)
 ORDER BY event.id
   FOR SHARE OF job SKIP LOCKED
