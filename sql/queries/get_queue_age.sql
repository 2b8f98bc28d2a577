-- get_queue_age: how long the first job of the queue has waited; a manual retry starts that time again
-- A job that is parked (retry_after is infinity) does not wait.
-- Parameters: (none)
-- Rows: one: seconds, null when nothing is queued
SELECT extract(epoch FROM now() - min(queued_at))::double precision AS seconds
  FROM {schema}.jobs
 WHERE status = 'queued' AND retry_after IS DISTINCT FROM 'infinity'
