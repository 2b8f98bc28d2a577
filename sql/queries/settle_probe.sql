-- settle_probe: open -> half_open, when the gateway answered well; else open for another cooldown
-- Parameters: holder, healthy, cooldown_ms
-- Rows: one, or none when the probe was taken over or the breaker was moved by hand
UPDATE {schema}.circuit_breaker
   SET state = CASE WHEN %(healthy)s THEN 'half_open' ELSE 'open' END,
       probe_by = CASE WHEN %(healthy)s THEN probe_by END,
       probe_after = now() + %(cooldown_ms)s * interval '1 millisecond'
 WHERE state = 'open' AND NOT by_hand AND probe_by = %(holder)s
RETURNING state
