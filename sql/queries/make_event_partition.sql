-- make_event_partition: creates the next partition of job_events, if fewer than `ahead` are ahead
-- Parameters: ahead
-- Rows: one: outcome (made, enough, or locked when another session was in the way)
SELECT {schema}.make_event_partition(%(ahead)s) AS outcome
