-- start_waiting: takes a place among the supervisors that wait for jobs, and listens there
-- Parameters: (none)
-- Rows: one: place, or null when all places are taken
SELECT {schema}.start_waiting() AS place
