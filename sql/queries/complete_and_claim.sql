-- complete_and_claim: processing -> complete, for its holder; queued -> processing, in the claim's order
-- In the middle of a queue: complete_job and claim_job as one statement, because a second row in one UPDATE
-- costs little. Not for a trial of the breaker. more_to_claim is checked as rarely as retries are.
-- Parameters: id, holder, attempt, result_path, retention_days, event, claimant, server, lease_ttl (s),
--   route, after_priority, after_turn, after_created_at, after_id, check_for_due, due_after
-- Rows: one, as claim_job's; completed: whether the lease was held. If not, nothing is claimed either
WITH state AS MATERIALIZED (
    SELECT {schema}.entries_read() AS read_before, state AS breaker, false AS probe_is_due,
           EXISTS (SELECT FROM {schema}.servers
                    WHERE id = %(server)s AND status = 'active') AS server_is_active,
           %(check_for_due)s AND coalesce((
               SELECT true FROM {schema}.jobs
                WHERE status = 'queued' AND retry_after <= now() AND retry_after >= %(due_after)s::timestamptz
                ORDER BY retry_after LIMIT 1), false) AS retry_is_due
      FROM {schema}.circuit_breaker
), finished AS MATERIALIZED (
    SELECT id FROM {schema}.jobs
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s FOR NO KEY UPDATE
), picked AS MATERIALIZED (
    SELECT id, updated_at AS claimable_since FROM {schema}.jobs
     WHERE (SELECT breaker = 'closed' AND server_is_active FROM state) AND EXISTS (SELECT FROM finished)
       AND status = 'queued' AND retry_after IS NULL AND route = %(route)s AND ({claim_order})
           >= (%(after_priority)s, %(after_turn)s, %(after_created_at)s::timestamptz, %(after_id)s)
     ORDER BY {claim_order} LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
), move AS MATERIALIZED (
    SELECT id, true AS completes, %(holder)s::text AS holder, now() AS claimable_since FROM finished
    UNION ALL SELECT id, false, NULL, claimable_since FROM picked
), moved AS (
    UPDATE {schema}.jobs AS job
       SET status = CASE WHEN completes THEN 'complete' ELSE 'processing' END, retry_after = NULL,
           result_path = CASE WHEN completes THEN %(result_path)s END, updated_at = clock_timestamp(),
           completed_at = CASE WHEN completes THEN now() ELSE completed_at END,
           expires_at = CASE WHEN NOT completes THEN expires_at
                             ELSE now() + nullif(%(retention_days)s, 0) * interval '1 day' END,
           leased_by = CASE WHEN NOT completes THEN %(claimant)s END, own_transitions = own_transitions + 1,
           lease_expires_at = CASE WHEN NOT completes THEN now() + make_interval(secs => %(lease_ttl)s) END,
           attempt_count = attempt_count + CASE WHEN completes THEN 0 ELSE 1 END,
           last_attempt_at = CASE WHEN completes THEN last_attempt_at ELSE now() END,
           started_at = CASE WHEN completes THEN started_at ELSE coalesce(started_at, now()) END
      FROM move WHERE job.id = move.id AND job.leased_by IS NOT DISTINCT FROM move.holder
    RETURNING job.id, completes, status, mapping, pretty, bytes, attempt_count AS attempt, run, priority,
              turn, created_at, claimable_since
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, status, CASE WHEN completes THEN %(event)s::jsonb
               ELSE jsonb_build_object('worker', %(claimant)s::text, 'attempt', attempt) END FROM moved
)
SELECT state.*, EXISTS (SELECT FROM moved WHERE completes) AS completed, job.id, mapping, pretty, bytes,
       attempt, run, priority, turn, created_at::text AS created_at, (now() - interval '5 s')::text AS recent,
       extract(epoch FROM clock_timestamp() - claimable_since)::double precision AS waited,
       %(check_for_due)s AND job.id IS NOT NULL AND coalesce((  -- ordered, not EXISTS, for the claim's index
           SELECT true FROM {schema}.jobs WHERE status = 'queued' AND retry_after IS NULL
              AND route = %(route)s
              AND ({claim_order}) > (-job.priority::bigint, job.turn, job.created_at, job.id)
            ORDER BY {claim_order} LIMIT 1), false) AS more_to_claim,
       CASE WHEN breaker = 'closed' AND server_is_active
            THEN {schema}.entries_read() - read_before END AS entries,
       extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision AS seconds
  FROM state LEFT JOIN moved AS job ON NOT job.completes
