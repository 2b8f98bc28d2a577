-- has_unfinished_history: whether a range of old events has one of an unfinished job, which keeps its history
-- Such a job is as old as its events, so the few that are come from jobs_by_status.
-- Parameters: days, after, upto
-- Rows: one: found
SELECT EXISTS (
    SELECT FROM {schema}.jobs AS job
     WHERE {schema}.is_active(job.status) AND job.created_at < now() - %(days)s * interval '1 day'
       AND coalesce((SELECT true FROM {schema}.job_events AS event  -- not EXISTS: it might read all of them
                      WHERE event.job_id = job.id AND event.id > %(after)s AND event.id <= %(upto)s
                      LIMIT 1), false)) AS found
