-- claim_job: queued -> processing, highest priority then oldest
-- Nothing is claimed while the breaker holds the queue or for a server that is not active (a reclaim would take it back).
-- after_*: where in the index to start. Before the last claimed key there are mostly taken rows, which a snapshot that
-- somebody holds keeps there dead; JobQueue starts behind them when walking over them has become dear.
-- look_for_due: whether to see if a retry is due, which promote_due_jobs lets in.
-- Parameters: holder, server, lease_ttl (s), after_priority, after_created_at, after_id, look_for_due
-- Rows: always one; job columns are null when nothing was claimed. walked: s until a job was found
WITH gate AS MATERIALIZED (
    SELECT state AS breaker,
           NOT by_hand AND state <> 'closed' AND trial_job IS NULL AND probe_after <= now() AS probe_is_due,
           state = 'closed' OR state = 'half_open' AND probe_by = %(holder)s AND trial_job IS NULL AS lets_through,
           EXISTS (SELECT FROM {schema}.servers WHERE id = %(server)s AND status = 'active') AS server_is_active,
           %(look_for_due)s AND coalesce((
               SELECT true FROM {schema}.jobs
                WHERE status = 'queued' AND retry_after <= now() ORDER BY retry_after LIMIT 1), false) AS retry_is_due
      FROM {schema}.circuit_breaker
), picked AS MATERIALIZED (
    SELECT id, updated_at, -priority::bigint AS key_priority, created_at AS key_created_at, clock_timestamp() AS found_at
      FROM {schema}.jobs
     WHERE (SELECT lets_through AND server_is_active FROM gate)
       AND status = 'queued' AND retry_after IS NULL
       AND (-priority::bigint, created_at, id) >= (%(after_priority)s, %(after_created_at)s, %(after_id)s)
     ORDER BY -priority::bigint, created_at, id
     LIMIT 1 FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE {schema}.jobs AS job
       SET status = 'processing', leased_by = %(holder)s, lease_expires_at = now() + make_interval(secs => %(lease_ttl)s),
           attempt_count = attempt_count + 1, last_attempt_at = now(), started_at = coalesce(started_at, now())
      FROM picked
     WHERE job.id = picked.id AND job.leased_by IS NULL  -- still queued; by status the planner might read all that are
    RETURNING job.id, job.mapping, job.pretty, job.bytes, job.attempt_count AS attempt, job.priority, job.created_at,
              extract(epoch FROM clock_timestamp() - picked.updated_at)::double precision AS waited,
              extract(epoch FROM picked.found_at - statement_timestamp())::double precision AS walked
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'processing', jsonb_build_object('worker', %(holder)s::text, 'attempt', attempt) FROM claimed
), trial AS (
    UPDATE {schema}.circuit_breaker SET trial_job = claimed.id FROM claimed WHERE state = 'half_open'
)
SELECT gate.breaker, gate.probe_is_due, gate.server_is_active, gate.retry_is_due, claimed.*,
       claimed.id IS NOT NULL AND coalesce((  -- ordered, not EXISTS: so that no other index will do for the planner
           SELECT true FROM {schema}.jobs
            WHERE status = 'queued' AND retry_after IS NULL
              AND (-priority::bigint, created_at, id) > ((SELECT key_priority FROM picked),
                                                         (SELECT key_created_at FROM picked), (SELECT id FROM picked))
            ORDER BY -priority::bigint, created_at, id LIMIT 1
       ), false) AS more_to_claim
  FROM gate LEFT JOIN claimed ON true
