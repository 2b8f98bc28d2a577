-- mark_events: remembers up to where events are drawn now, for the next floor of the aggregation (0005)
-- A mark stays until the position has reached it. In a transaction that has written something there is none.
-- Parameters: (none)
-- Rows: (none)
UPDATE {schema}.counters_position AS reached
   SET mark_xact = mark.xact_id, mark_id = mark.event_id
  FROM {schema}.event_mark() AS mark
 WHERE reached.mark_xact IS NULL
