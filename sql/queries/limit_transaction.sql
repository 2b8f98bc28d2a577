-- limit_transaction: bounds on this transaction alone, where a pooler allows none on the session
-- Parameters: lock_timeout, idle_timeout (ms)
-- Rows: one
SELECT set_config('lock_timeout', %(lock_timeout)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s::text, true)
