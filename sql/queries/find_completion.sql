-- find_completion: complete by this very attempt, for a worker whose commit was answered by silence
-- An attempt that began later is of another run of the job, in which the same holder may have had the same
-- number.
-- Parameters: id, holder, attempt
-- Rows: one, or none
SELECT done.id FROM {schema}.job_events AS done
 WHERE done.job_id = %(id)s AND done.event_type = 'complete'
   AND done.meta @> jsonb_build_object('worker', %(holder)s::text, 'attempt', %(attempt)s::int)
   AND NOT EXISTS (
       SELECT FROM {schema}.job_events AS later
        WHERE later.job_id = done.job_id AND later.id > done.id AND later.event_type = 'processing')
