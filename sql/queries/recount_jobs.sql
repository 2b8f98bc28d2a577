-- recount_jobs: sets the number of jobs in each status to what the table says; keeps no writer waiting
-- Parameters: (none)
-- Rows: one
SELECT {schema}.recount_jobs()
