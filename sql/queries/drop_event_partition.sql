-- drop_event_partition: drops a partition of job_events whose events count_range has found to be old
-- It stays if an event was written since, or if one is not aggregated into the counters yet.
-- Parameters: name, unchanged_since (the xmin of the first count_range)
-- Rows: one: outcome (dropped, kept, or locked when another session was in the way)
SELECT {schema}.drop_event_partition(%(name)s, %(unchanged_since)s::text::xid8) AS outcome
