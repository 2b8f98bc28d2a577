-- mark_limit_recorded: remembers which limit the last event of it has named
-- Parameters: gateway
-- Rows: (none)
UPDATE {schema}.gateway_limits
   SET recorded_calls = max_calls, recorded_reason = reason, recorded_at = now()
 WHERE gateway = %(gateway)s
