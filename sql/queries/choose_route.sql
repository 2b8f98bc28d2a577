-- choose_route: the gateways of a worker: which may be called now, and the first job of each
-- A gateway that may not be called costs no scan. A worker that has probed a gateway takes its trial first.
-- The others are in the claim's order of their first jobs. A job that another worker is just claiming is
-- still seen.
-- Parameters: holder, routes (JSON array: route, excluded, and the position that its claim would start from:
--   after_priority, after_turn, after_created_at, after_id)
-- Rows: one per gateway: route, breaker, probe_is_due, is_limited, has_slot, may_run; then of its first job
--   first_id and waited (s), null without one; entries, seconds, recent: as in complete_and_claim
SELECT given.route, breaker.state AS breaker,
       NOT by_hand AND breaker.state <> 'closed' AND trial_job IS NULL AND probe_after <= now()
           AS probe_is_due,
       max_calls IS NOT NULL AS is_limited, coalesce(slot.is_mine, false) AS has_slot, allowed.may_run,
       peek.first_id, peek.entries, peek.seconds, (now() - interval '5 s')::text AS recent,
       extract(epoch FROM clock_timestamp() - peek.claimable_since)::double precision AS waited
  FROM jsonb_to_recordset(%(routes)s::jsonb) AS given (
           route text, excluded text[], after_priority bigint, after_turn bigint,
           after_created_at timestamptz, after_id uuid)
  JOIN {schema}.circuit_breaker AS breaker ON breaker.gateway = given.route
  LEFT JOIN LATERAL (
       SELECT slot.holder IS NOT NULL AS is_mine FROM {schema}.gateway_slots AS slot
        WHERE slot.gateway = given.route AND slot.number <= breaker.max_calls
          AND (slot.holder = %(holder)s OR slot.holder IS NULL AND slot.number + (
                  SELECT count(*) FROM {schema}.gateway_slots AS other
                   WHERE other.gateway = slot.gateway AND other.number > slot.number
                     AND other.holder IS NOT NULL) <= breaker.max_calls)
        ORDER BY slot.holder IS NULL LIMIT 1) AS slot ON true
 CROSS JOIN LATERAL (
       SELECT (breaker.state = 'closed'
               OR breaker.state = 'half_open' AND probe_by = %(holder)s AND trial_job IS NULL)
              AND (max_calls IS NULL OR slot.is_mine IS NOT NULL)
              AND NOT EXISTS (SELECT FROM {schema}.pauses
                               WHERE owner IS NULL AND (gateway IS NULL OR gateway = given.route))
                  AS may_run) AS allowed
  LEFT JOIN LATERAL {schema}.peek_route(
       given.route, after_priority, after_turn, after_created_at, after_id, given.excluded) AS peek
    ON allowed.may_run
 ORDER BY first_id IS NULL, breaker.state <> 'half_open', first_priority, first_turn, first_created_at,
          first_id
