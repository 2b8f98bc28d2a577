-- get_counters: every counter as of now, aggregated or not, in one snapshot
-- Parameters: (none)
-- Rows: one per counter: name, label, value
SELECT name, label, value FROM {schema}.counted_so_far()
