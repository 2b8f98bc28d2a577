-- allow_cleanup: until the end of this transaction events may be deleted (trigger keep_events)
-- Parameters: (none)
-- Rows: one
SELECT set_config('convertq.cleanup', 'on', true)
