-- get_queue_age: how long the first job of the queue has waited; a manual retry starts that time again
-- A job that is parked (retry_after is infinity), or whose time has not come, does not wait.
-- Parameters: (none)
-- Rows: one: seconds, null when nothing is queued
SELECT (SELECT extract(epoch FROM now() - greatest(queued_at, not_before)) FROM {schema}.jobs
         WHERE status = 'queued' AND retry_after IS DISTINCT FROM 'infinity'
           AND (not_before > now()) IS NOT TRUE
         ORDER BY queued_at LIMIT 1)::double precision AS seconds
