-- set_lock_timeout: for the rest of this session; 0 waits for as long as it takes
-- Parameters: milliseconds
-- Rows: one
SELECT set_config('lock_timeout', %(milliseconds)s::text, false)
