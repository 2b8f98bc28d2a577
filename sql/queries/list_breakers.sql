-- list_breakers: the state of each gateway, how its last calls went, and the calls that it has now
-- A gateway that no server has declared yet is closed. The window is read as in trip_breaker.
-- Parameters: gateways (their names, in order), window, first_event (an older one is not read)
-- Rows: one per gateway, in that order; most_calls, reason, reason_since, reason_seconds and
--   limit_state are null unless its limit is adaptive; are_enough is false when older events may have calls
--   of the window
SELECT given.name AS gateway, coalesce(breaker.state, 'closed') AS state, coalesce(by_hand, false) AS by_hand,
       opened_at, probe_by, trial_job, breaker.max_calls, adaptive.most_calls, adaptive.reason,
       adaptive.reason_since, adaptive.state AS limit_state,
       extract(epoch FROM now() - adaptive.reason_since)::double precision AS reason_seconds,
       extract(epoch FROM probe_after - now())::double precision AS probe_seconds,
       extract(epoch FROM now() - opened_at)::double precision AS seconds,
       coalesce(open_seconds, 0) + coalesce(extract(epoch FROM now() - opened_at), 0)::double precision
           AS open_seconds_total,
       (SELECT count(*) FROM {schema}.gateway_slots AS slot
         WHERE slot.gateway = given.name AND slot.holder IS NOT NULL) AS slots_taken,
       calls.calls, calls.failures,
       calls.calls >= %(window)s OR coalesce(breaker.window_after, 0) >= %(first_event)s::bigint - 1
           AS are_enough
  FROM unnest(%(gateways)s::text[]) WITH ORDINALITY AS given (name, place)
  LEFT JOIN {schema}.circuit_breaker AS breaker ON breaker.gateway = given.name
  LEFT JOIN {schema}.gateway_limits AS adaptive ON adaptive.gateway = given.name
 CROSS JOIN LATERAL (
       SELECT count(*) AS calls, count(*) FILTER (WHERE NOT ok) AS failures
         FROM (SELECT ok
                 FROM (SELECT event.id, (event.meta ->> 'gateway_ok')::boolean AS ok,
                              coalesce(event.meta ->> 'gateway', 'default') AS called
                         FROM {schema}.job_events AS event
                        WHERE event.meta ? 'gateway_ok' AND event.id > coalesce(breaker.window_after, 0)
                          AND event.id >= %(first_event)s::bigint
                        ORDER BY event.id DESC LIMIT 50000) AS newest
                WHERE called = given.name
                ORDER BY id DESC LIMIT %(window)s) AS last) AS calls
 ORDER BY given.place
