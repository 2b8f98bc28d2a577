-- make_event_partition: creates the next partition of job_events, if fewer than `ahead` are ahead
-- When they are there, and the current one has been in use for 15 days, events go to the next one.
-- Parameters: ahead
-- Rows: one: outcome (made, begun, enough, or locked when another session was in the way)
SELECT {schema}.make_event_partition(%(ahead)s) AS outcome
