-- claim_job: queued -> processing, in the claim's order
-- Nothing is claimed while the breaker is open, or for a server that is not active: reclaiming would take
-- it back. after_*: the index is read from this position on. Before the last claimed key there are mostly
-- claimed rows, whose dead entries stay there while a session holds an old snapshot; ScanBudget starts
-- after them when scanning them becomes slow. check_for_due: whether to check for a retry that is due
-- (promote_due_jobs), from due_after on.
-- Parameters: holder, server, lease_ttl (s), route, after_priority, after_turn, after_created_at, after_id,
--   check_for_due, due_after
-- Rows: one; job columns are null when nothing was claimed. entries: how many entries of the indexes were
--   read, dead ones included, in how many seconds; null when this server may not claim. recent: new jobs
--   are created later
WITH state AS MATERIALIZED (
    SELECT {schema}.entries_read() AS read_before, state AS breaker,
           NOT by_hand AND state <> 'closed' AND trial_job IS NULL AND probe_after <= now() AS probe_is_due,
           state = 'closed'
               OR state = 'half_open' AND probe_by = %(holder)s AND trial_job IS NULL AS allows_claims,
           EXISTS (SELECT FROM {schema}.servers
                    WHERE id = %(server)s AND status = 'active') AS server_is_active,
           %(check_for_due)s AND coalesce((
               SELECT true FROM {schema}.jobs
                WHERE status = 'queued' AND retry_after <= now() AND retry_after >= %(due_after)s::timestamptz
                ORDER BY retry_after LIMIT 1), false) AS retry_is_due
      FROM {schema}.circuit_breaker
), picked AS MATERIALIZED (
    SELECT id, updated_at AS claimable_since FROM {schema}.jobs
     WHERE (SELECT allows_claims AND server_is_active FROM state)
       AND status = 'queued' AND retry_after IS NULL AND route = %(route)s AND ({claim_order})
           >= (%(after_priority)s, %(after_turn)s, %(after_created_at)s::timestamptz, %(after_id)s)
     ORDER BY {claim_order} LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
    UPDATE {schema}.jobs AS job
       SET status = 'processing', leased_by = %(holder)s, attempt_count = attempt_count + 1,
           lease_expires_at = now() + make_interval(secs => %(lease_ttl)s), last_attempt_at = now(),
           started_at = coalesce(started_at, now()),
           own_transitions = own_transitions + 1, updated_at = clock_timestamp()
      FROM picked
     WHERE job.id = picked.id AND job.leased_by IS NULL  -- by status the planner might read all queued
    RETURNING job.id, mapping, pretty, bytes, attempt_count AS attempt, run, priority, turn, created_at,
              claimable_since
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'processing', jsonb_build_object('worker', %(holder)s::text, 'attempt', attempt) FROM claimed
), trial AS (
    UPDATE {schema}.circuit_breaker SET trial_job = claimed.id FROM claimed WHERE state = 'half_open'
)
SELECT state.breaker, state.probe_is_due, state.server_is_active, state.retry_is_due,
       job.id, mapping, pretty, bytes, attempt, run, priority, turn, created_at::text AS created_at,
       extract(epoch FROM clock_timestamp() - claimable_since)::double precision AS waited,
       job.id IS NOT NULL AND coalesce((  -- ordered, not EXISTS, for the claim's index
           SELECT true FROM {schema}.jobs WHERE status = 'queued' AND retry_after IS NULL
              AND route = %(route)s
              AND ({claim_order}) > (-job.priority::bigint, job.turn, job.created_at, job.id)
            ORDER BY {claim_order} LIMIT 1), false) AS more_to_claim,
       CASE WHEN allows_claims AND server_is_active
            THEN {schema}.entries_read() - read_before END AS entries,
       extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision AS seconds,
       (now() - interval '5 s')::text AS recent
  FROM state LEFT JOIN claimed AS job ON true
