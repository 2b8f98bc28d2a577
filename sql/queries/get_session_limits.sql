-- get_session_limits: the limits that are in force in this session, which a pooler may have dropped
-- Parameters: (none)
-- Rows: one
SELECT (1000 * extract(epoch FROM current_setting('statement_timeout')::interval))::bigint
           AS statement_timeout_ms,
       (1000 * extract(epoch FROM current_setting('lock_timeout')::interval))::bigint AS lock_timeout_ms
