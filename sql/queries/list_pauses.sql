-- list_pauses: what is paused by hand, the oldest first
-- Parameters: (none)
-- Rows: one per pause: gateway, owner (null: all), by, at
SELECT gateway, owner, by, at FROM {schema}.pauses ORDER BY at, id
