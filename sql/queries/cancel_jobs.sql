-- cancel_jobs: uploaded, queued or processing -> cancelled, at once and for any caller
-- The lease ends with it, so the fence refuses every later write of the worker, which a trigger notifies. An
-- attempt that is ended does not count. Locked in the order of ids: two cancels of the same jobs do not
-- wait for each other in a circle.
-- Parameters: ids, by (who cancels)
-- Rows: one per job that was unfinished: id, attempt, holder, was_started (in this run, by any worker)
WITH unfinished AS MATERIALIZED (
    SELECT id, status, attempt_count, leased_by FROM {schema}.jobs
     WHERE id = ANY (%(ids)s::uuid[]) AND {schema}.is_active(status)
     ORDER BY id FOR NO KEY UPDATE
), cancelled AS (
    UPDATE {schema}.jobs AS job
       SET status = 'cancelled', cancelled_at = now(), retry_after = NULL,
           attempt_count = job.attempt_count - (unfinished.status = 'processing')::int,
           leased_by = NULL, lease_expires_at = NULL
      FROM unfinished
     WHERE job.id = unfinished.id
    RETURNING job.id, unfinished.status AS came_from, unfinished.attempt_count AS attempt,
              unfinished.leased_by AS holder,
              unfinished.leased_by IS NOT NULL OR job.started_at IS NOT NULL AS was_started
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'cancelled', jsonb_strip_nulls(jsonb_build_object(
               'by', %(by)s::text, 'from', nullif(came_from, 'processing'), 'worker', holder,
               'attempt', CASE came_from WHEN 'processing' THEN attempt END))
      FROM cancelled
)
SELECT id, attempt, holder, was_started FROM cancelled
