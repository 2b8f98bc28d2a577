-- complete_and_claim: processing -> complete, for its holder alone; queued -> processing, highest priority then oldest
-- In the middle of a queue: complete_job and claim_job, with their rules and reasons, as one statement. PostgreSQL reads
-- constraints, triggers and indexes once for each, so two rows in one UPDATE cost little more than one. Only where the
-- breaker is closed: a trial is claimed by claim_job. What this completion lets into the queue is for the next claim.
-- look_for_due: also for more_to_claim. Whoever is idle was woken when it came; what a retry let in is passed on now and then.
-- Parameters: id, holder, attempt, result_path, retention_days, gateway_ok, gateway_status, gateway_ms, duration_ms, claimant, server, lease_ttl (s), after_priority, after_created_at, after_id, look_for_due
-- Rows: always one, as claim_job's; completed: whether the lease was held. If not, nothing is claimed either
WITH gate AS MATERIALIZED (
    SELECT state AS breaker, false AS probe_is_due,
           EXISTS (SELECT FROM {schema}.servers WHERE id = %(server)s AND status = 'active') AS server_is_active,
           %(look_for_due)s AND coalesce((
               SELECT true FROM {schema}.jobs
                WHERE status = 'queued' AND retry_after <= now() ORDER BY retry_after LIMIT 1), false) AS retry_is_due
      FROM {schema}.circuit_breaker
), finished AS MATERIALIZED (
    SELECT id FROM {schema}.jobs WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s FOR UPDATE
), picked AS MATERIALIZED (
    SELECT id, updated_at, -priority::bigint AS key_priority, created_at AS key_created_at, clock_timestamp() AS found_at
      FROM {schema}.jobs
     WHERE (SELECT breaker = 'closed' AND server_is_active FROM gate) AND EXISTS (SELECT FROM finished)
       AND status = 'queued' AND retry_after IS NULL
       AND (-priority::bigint, created_at, id) >= (%(after_priority)s, %(after_created_at)s, %(after_id)s)
     ORDER BY -priority::bigint, created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
), move AS MATERIALIZED (
    SELECT id, 'complete' AS status, %(holder)s::text AS held_by, %(result_path)s::text AS result_path FROM finished
    UNION ALL
    SELECT id, 'processing', NULL, NULL FROM picked
), moved AS (
    UPDATE {schema}.jobs AS job
       SET status = move.status, result_path = move.result_path, retry_after = NULL,
           completed_at = CASE move.status WHEN 'complete' THEN now() ELSE completed_at END,
           expires_at = CASE move.status WHEN 'complete' THEN now() + nullif(%(retention_days)s, 0) * interval '1 day' ELSE expires_at END,
           leased_by = CASE move.status WHEN 'processing' THEN %(claimant)s END,
           lease_expires_at = CASE move.status WHEN 'processing' THEN now() + make_interval(secs => %(lease_ttl)s) END,
           attempt_count = attempt_count + CASE move.status WHEN 'processing' THEN 1 ELSE 0 END,
           last_attempt_at = CASE move.status WHEN 'processing' THEN now() ELSE last_attempt_at END,
           started_at = CASE move.status WHEN 'processing' THEN coalesce(started_at, now()) ELSE started_at END
      FROM move
     WHERE job.id = move.id AND job.leased_by IS NOT DISTINCT FROM move.held_by
    RETURNING job.id, job.status, job.mapping, job.pretty, job.bytes, job.attempt_count AS attempt, job.priority, job.created_at
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, status, CASE status
               WHEN 'processing' THEN jsonb_build_object('worker', %(claimant)s::text, 'attempt', attempt)
               ELSE jsonb_strip_nulls(jsonb_build_object(
                   'worker', %(holder)s::text, 'attempt', attempt, 'duration_ms', %(duration_ms)s::int, 'gateway_ok', %(gateway_ok)s::boolean,
                   'gateway_status', %(gateway_status)s::int, 'gateway_ms', %(gateway_ms)s::int)) END
      FROM moved
)
SELECT gate.*, claimed.*,
       extract(epoch FROM clock_timestamp() - picked.updated_at)::double precision AS waited,
       extract(epoch FROM picked.found_at - statement_timestamp())::double precision AS walked,
       EXISTS (SELECT FROM moved WHERE status = 'complete') AS completed,
       %(look_for_due)s AND claimed.id IS NOT NULL AND coalesce((  -- ordered, not EXISTS: so that no other index will do for the planner
           SELECT true FROM {schema}.jobs
            WHERE status = 'queued' AND retry_after IS NULL AND (-priority::bigint, created_at, id)
                  > ((SELECT key_priority FROM picked), (SELECT key_created_at FROM picked), (SELECT id FROM picked))
            ORDER BY -priority::bigint, created_at, id LIMIT 1), false) AS more_to_claim
  FROM gate LEFT JOIN (moved AS claimed JOIN picked USING (id)) ON true
