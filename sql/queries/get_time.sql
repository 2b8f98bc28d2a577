-- get_time: the database's clock, by which every time is judged
-- Parameters: (none)
-- Rows: one: now
SELECT now() AS now
