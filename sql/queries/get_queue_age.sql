-- get_queue_age: how long the first job of the queue has waited; a manual retry starts that time again
-- A job that is parked (retry_after is infinity), whose owner is paused or has too many running jobs (the
-- year 9999), or whose time has not come, does not wait.
-- Parameters: (none)
-- Rows: one: seconds, null when nothing is queued
SELECT (SELECT extract(epoch FROM now() - greatest(queued_at, not_before)) FROM {schema}.jobs
         WHERE status = 'queued' AND coalesce(retry_after < '9999-01-01 00:00+00', true)
           AND (not_before > now()) IS NOT TRUE
         ORDER BY queued_at LIMIT 1)::double precision AS seconds
