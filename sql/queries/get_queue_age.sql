-- get_queue_age: how long the first of the queue has waited since it was queued (a manual retry begins anew)
-- Parameters: (none)
-- Rows: one: seconds, null when nothing is queued
SELECT extract(epoch FROM now() - min(queued_at))::double precision AS seconds FROM {schema}.jobs WHERE status = 'queued'
