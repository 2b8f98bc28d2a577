-- lock_limits: the adaptive limits that this supervisor decides now
-- Those that another supervisor is deciding are left out. A limit is decided about once a second, and only
-- when calls have been measured.
-- Parameters: gateways (their names), pause (s)
-- Rows: one per gateway: gateway, max_calls, most_calls, state, reason, recorded_calls, recorded_reason,
--   recorded_seconds (since the last event), in_use (slots), now (s)
SELECT known.gateway, known.max_calls, known.most_calls, known.state, known.reason, known.recorded_calls,
       known.recorded_reason,
       extract(epoch FROM now() - known.recorded_at)::double precision AS recorded_seconds,
       (SELECT count(*) FROM {schema}.gateway_slots AS slot
         WHERE slot.gateway = known.gateway AND slot.holder IS NOT NULL) AS in_use,
       extract(epoch FROM now())::double precision AS now
  FROM {schema}.gateway_limits AS known
 WHERE known.gateway = ANY (%(gateways)s::text[])
   AND known.decided_at <= now() - make_interval(secs => %(pause)s)
   AND EXISTS (SELECT FROM {schema}.measured_calls AS measured WHERE measured.gateway = known.gateway)
 ORDER BY known.gateway FOR NO KEY UPDATE OF known SKIP LOCKED
