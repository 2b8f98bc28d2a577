-- find_outcome: the event by which this very attempt ended, for a worker whose commit was not answered
-- An attempt that began later is of another run of the job, in which the same holder may have had the same
-- number.
-- Parameters: id, holder, attempt, event_type
-- Rows: one, or none: retry_after
SELECT (done.meta ->> 'retry_after')::timestamptz AS retry_after FROM {schema}.job_events AS done
 WHERE done.job_id = %(id)s AND done.event_type = %(event_type)s
   AND done.meta @> jsonb_build_object('worker', %(holder)s::text, 'attempt', %(attempt)s::int)
   AND NOT EXISTS (
       SELECT FROM {schema}.job_events AS later
        WHERE later.job_id = done.job_id AND later.id > done.id AND later.event_type = 'processing')
