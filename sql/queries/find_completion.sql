-- find_completion: complete by this very attempt, for a worker whose commit was answered by silence
-- Parameters: id, holder, attempt
-- Rows: one, or none
SELECT id FROM {schema}.job_events
 WHERE job_id = %(id)s AND event_type = 'complete'
   AND meta @> jsonb_build_object('worker', %(holder)s::text, 'attempt', %(attempt)s::int)
