-- get_first_event: an id below which every event is older than a day, so that reads skip older partitions
-- Parameters: (none)
-- Rows: one: first_event, 0 while it is unknown
SELECT {schema}.first_event_since(interval '24 hours') AS first_event
