-- explain: put before another statement: its plan in this database, as JSON; nothing is run and nothing changes
-- Parameters: (none)
-- Rows: one
EXPLAIN (FORMAT JSON)
