-- set_limit: records a decision about an adaptive limit, and puts it in force
-- Slots are made as they are needed. If there are more than before, waiting hosts are notified.
-- Parameters: gateway, max_calls, state (JSON), reason
-- Rows: one: woken
WITH decided AS (
    UPDATE {schema}.gateway_limits
       SET max_calls = %(max_calls)s, state = %(state)s::jsonb, reason = %(reason)s, decided_at = now(),
           reason_since = CASE WHEN reason = %(reason)s THEN reason_since ELSE now() END
     WHERE gateway = %(gateway)s
), slots AS (
    INSERT INTO {schema}.gateway_slots (gateway, number)
    SELECT %(gateway)s, number FROM generate_series(1, %(max_calls)s) AS wanted (number)
     WHERE NOT EXISTS (SELECT FROM {schema}.gateway_slots AS slot
                        WHERE slot.gateway = %(gateway)s AND slot.number = wanted.number)
    ON CONFLICT DO NOTHING
), before AS MATERIALIZED (
    SELECT max_calls FROM {schema}.circuit_breaker WHERE gateway = %(gateway)s
), changed AS (
    UPDATE {schema}.circuit_breaker SET max_calls = %(max_calls)s
     WHERE gateway = %(gateway)s AND max_calls IS DISTINCT FROM %(max_calls)s
)
SELECT CASE WHEN before.max_calls < %(max_calls)s AND {schema}.somebody_waits()
            THEN {schema}.wake_servers(2) END AS woken
  FROM before
