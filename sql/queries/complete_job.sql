-- complete_job: processing -> complete, for its holder alone
-- gateway_ok is not in the event when the attempt made no call (a leftover result): the breaker counts calls.
-- Parameters: id, holder, attempt, result_path, retention_days (0: without limit), event (JSON)
-- Rows: one, or none when the lease is lost
WITH done AS (
    UPDATE {schema}.jobs
       SET status = 'complete', result_path = %(result_path)s, completed_at = now(),
           expires_at = now() + nullif(%(retention_days)s, 0) * interval '1 day',
           leased_by = NULL, lease_expires_at = NULL, retry_after = NULL,
           own_transitions = own_transitions + 1, updated_at = clock_timestamp()
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'complete', %(event)s::jsonb FROM done
)
SELECT id FROM done
