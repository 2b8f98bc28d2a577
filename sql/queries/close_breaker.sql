-- close_breaker: half_open -> closed, after the trial's call went well; the window starts again
-- Parameters: id (the job that was the trial)
-- Rows: one when it closed: seconds it was open
WITH before AS MATERIALIZED (
    SELECT opened_at FROM {schema}.circuit_breaker WHERE state = 'half_open' AND trial_job = %(id)s)
UPDATE {schema}.circuit_breaker
   SET state = 'closed', opened_at = NULL, probe_after = NULL, probe_by = NULL, trial_job = NULL,
       open_seconds = open_seconds + extract(epoch FROM now() - before.opened_at),
       window_after = (SELECT coalesce(max(id), 0) FROM {schema}.job_events)
  FROM before
 WHERE state = 'half_open' AND trial_job = %(id)s
RETURNING gateway, extract(epoch FROM now() - before.opened_at)::double precision AS seconds
