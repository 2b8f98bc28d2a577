-- explain: goes before another statement: its plan in this database, as JSON; nothing is executed
-- Parameters: (none)
-- Rows: one
EXPLAIN (FORMAT JSON)
