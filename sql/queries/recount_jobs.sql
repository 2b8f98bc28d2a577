-- recount_jobs: sets the number of jobs in each status to what the table has; no writer waits
-- Parameters: (none)
-- Rows: one
SELECT {schema}.recount_jobs()
