-- list_events: a job's timeline, oldest first
-- Parameters: id
-- Rows: one per event
SELECT event_type, at, meta FROM {schema}.job_events WHERE job_id = %(id)s ORDER BY id
