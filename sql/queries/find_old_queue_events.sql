-- find_old_queue_events: events of the queue that have been kept for long enough, oldest first
-- One page of the oldest ids: where all of it is old, the caller asks for the next.
-- Parameters: days, limit
-- Rows: one per event: id, at
SELECT id, at
  FROM (SELECT id, at FROM {schema}.queue_events ORDER BY id LIMIT %(limit)s) AS oldest
 WHERE at < now() - %(days)s * interval '1 day'
 ORDER BY id
