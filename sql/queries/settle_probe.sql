-- settle_probe: open -> half_open, when the gateway answered well; else open for another cooldown
-- The trial may take a second to be claimed even where the cooldown is shorter, or it could never be.
-- Parameters: gateway, holder, healthy, cooldown_ms
-- Rows: one, or none when the probe was taken over or the breaker was moved by hand
UPDATE {schema}.circuit_breaker
   SET state = CASE WHEN %(healthy)s THEN 'half_open' ELSE 'open' END,
       probe_by = CASE WHEN %(healthy)s THEN probe_by END,
       probe_after = now() + CASE WHEN %(healthy)s THEN greatest(%(cooldown_ms)s, 1000)
           ELSE %(cooldown_ms)s END
                             * interval '1 millisecond'
 WHERE gateway = %(gateway)s AND state = 'open' AND NOT by_hand AND probe_by = %(holder)s
RETURNING state
