-- listen_for_cancels: this session is notified when a job that a worker converts is cancelled
-- Parameters: (none)
-- Rows: one
SELECT {schema}.listen_for_cancels()
