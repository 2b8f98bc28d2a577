-- complete_and_claim: processing -> complete, for their holder; queued -> processing, in the claim's order
-- Up to eight jobs of each kind, also none: most of the cost is that of the statement, not of its rows.
-- Nothing is claimed while the gateway's breaker is open or the gateway paused, without a slot within the
-- gateway's limit, for a server that is not active, or if the lease of a job to complete is lost; one job at
-- most where owners have a limit (cap). excluded: mappings that only other servers know; coalesce, because
-- the planner would expect hardly any other job. after_*: the index is read from this position on: before it
-- are mostly claimed jobs, whose dead entries stay while a session holds an old snapshot (ScanBudget).
-- check_for_due: of retries, from due_after on. LIMIT 8: else the planner would read the whole table.
-- Parameters: finished (JSON array: id, holder, attempt, run, result_path, event), retention_days (0: no
--   limit), holder, server, lease_ttl (s), wanted (jobs to claim), route, excluded, after_priority,
--   after_turn, after_created_at, after_id, check_for_due, due_after, count_up_to
-- Rows: one per claimed job, in any order (place: its order); one with null job columns if none was claimed.
--   completed: the ids whose lease was held. left_over: jobs that could be claimed too, up to count_up_to.
--   entries: how many entries of the indexes were read, dead ones included, in how many seconds; null when
--   this server may not claim. recent: new jobs are created later
WITH state AS MATERIALIZED (
    SELECT {schema}.entries_read() AS read_before, state AS breaker,
           NOT by_hand AND state <> 'closed' AND trial_job IS NULL AND probe_after <= now() AS probe_is_due,
           NOT gateway_paused AND (state = 'closed' OR state = 'half_open' AND probe_by = %(holder)s
                                   AND trial_job IS NULL AND %(finished)s::jsonb = '[]')
               AND (max_calls IS NULL OR EXISTS (SELECT FROM {schema}.gateway_slots
                        WHERE gateway = %(route)s AND holder = %(holder)s AND number <= max_calls))
               AS allows_claims, gateway_paused, max_calls IS NOT NULL AS is_limited, cap,
           paused_owners || CASE WHEN cap > 0 THEN {schema}.owners_at_cap(cap) END AS waiting,
           EXISTS (SELECT FROM {schema}.servers WHERE id = %(server)s AND status = 'active') AS server_active,
           %(check_for_due)s AND coalesce((
               SELECT true FROM {schema}.jobs
                WHERE status = 'queued' AND retry_after <= now() AND retry_after >= %(due_after)s::timestamptz
                ORDER BY retry_after LIMIT 1), false) AS retry_is_due
      FROM (SELECT owner_max_running AS cap FROM {schema}.fair_share) AS share, {schema}.circuit_breaker, (
               SELECT count(*) FILTER (WHERE owner IS NULL) > 0 AS gateway_paused,
                      array_agg(owner) FILTER (WHERE owner IS NOT NULL) AS paused_owners
                 FROM {schema}.pauses WHERE gateway IS NULL OR gateway = %(route)s) AS pause
     WHERE gateway = %(route)s
), finished AS MATERIALIZED (
    SELECT job.id, given.holder, given.result_path, given.event
      FROM (SELECT * FROM jsonb_to_recordset(%(finished)s::jsonb) AS one (
                id uuid, holder text, attempt int, run int, result_path text, event jsonb) LIMIT 8) AS given
      JOIN {schema}.jobs AS job ON job.id = given.id AND job.leased_by = given.holder
       AND job.attempt_count = given.attempt AND job.run = given.run FOR NO KEY UPDATE OF job
), picked AS MATERIALIZED (
    SELECT id, updated_at AS claimable_since, row_number() OVER () AS place FROM (
        SELECT id, updated_at FROM {schema}.jobs
         WHERE (SELECT allows_claims AND server_active FROM state)
           AND (SELECT count(*) FROM finished) = jsonb_array_length(%(finished)s::jsonb)
           AND (deadline <= now()) IS NOT TRUE AND coalesce(mapping <> ALL (%(excluded)s::text[]), true)
           AND (coalesce(owner_session_id, '') = ANY ((SELECT waiting FROM state)::text[])) IS NOT TRUE
           AND status = 'queued' AND retry_after IS NULL AND route = %(route)s AND ({claim_order})
               >= (%(after_priority)s, %(after_turn)s, %(after_created_at)s::timestamptz, %(after_id)s)
         ORDER BY {claim_order} LIMIT (SELECT least(%(wanted)s::int, CASE WHEN cap > 0 THEN 1 END) FROM state)
           FOR NO KEY UPDATE SKIP LOCKED) AS claimable LIMIT 8
), move AS MATERIALIZED (
    SELECT true AS completes, id, holder, result_path, event, NULL::timestamptz AS claimable_since,
           NULL::bigint AS place FROM finished
    UNION ALL SELECT false, id, NULL, NULL, NULL, claimable_since, place FROM picked
), moved AS (
    UPDATE {schema}.jobs AS job
       SET status = CASE WHEN completes THEN 'complete' ELSE 'processing' END, retry_after = NULL,
           result_path = move.result_path, updated_at = clock_timestamp(),
           completed_at = CASE WHEN completes THEN now() ELSE completed_at END,
           expires_at = CASE WHEN NOT completes THEN expires_at
                             ELSE now() + nullif(%(retention_days)s, 0) * interval '1 day' END,
           leased_by = CASE WHEN NOT completes THEN %(holder)s END, own_transitions = own_transitions + 1,
           lease_expires_at = CASE WHEN NOT completes THEN now() + make_interval(secs => %(lease_ttl)s) END,
           attempt_count = attempt_count + CASE WHEN completes THEN 0 ELSE 1 END,
           last_attempt_at = CASE WHEN completes THEN last_attempt_at ELSE now() END,
           started_at = CASE WHEN completes THEN started_at ELSE coalesce(started_at, now()) END
      FROM move WHERE job.id = move.id AND job.leased_by IS NOT DISTINCT FROM move.holder
    RETURNING job.id, completes, status, event, leased_by, mapping, pretty, bytes, attempt_count AS attempt,
              run, priority, turn, created_at, claimable_since, place
), written AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, status, coalesce(event, jsonb_build_object('worker', leased_by, 'attempt', attempt)) FROM moved
), trial AS (
    UPDATE {schema}.circuit_breaker SET trial_job = moved.id
      FROM moved WHERE state = 'half_open' AND gateway = %(route)s AND NOT completes
)
SELECT breaker, gateway_paused, probe_is_due, is_limited, server_active, retry_is_due,
       (now() - interval '5 s')::text AS recent, ARRAY(SELECT id FROM moved WHERE completes) AS completed,
       job.id, place, mapping, pretty, bytes, attempt, run, priority, turn, created_at::text AS created_at,
       extract(epoch FROM clock_timestamp() - claimable_since)::double precision AS waited,
       (SELECT count(*) FROM moved AS last, LATERAL (
            SELECT FROM {schema}.jobs WHERE status = 'queued' AND retry_after IS NULL AND route = %(route)s
               AND ({claim_order}) > (-last.priority::bigint, last.turn, last.created_at, last.id)
             ORDER BY {claim_order} LIMIT %(count_up_to)s::int) AS behind
         WHERE %(count_up_to)s::int > 0 AND last.place = (SELECT count(*) FROM picked)) AS left_over,
       CASE WHEN allows_claims AND server_active THEN {schema}.entries_read() - read_before END AS entries,
       extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision AS seconds
  FROM state LEFT JOIN moved AS job ON NOT job.completes
