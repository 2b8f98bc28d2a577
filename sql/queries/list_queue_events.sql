-- list_queue_events: what happened to the queue, newest first
-- Parameters: limit
-- Rows: one per event: id, event_type, at, meta
SELECT id, event_type, at, meta FROM {schema}.queue_events ORDER BY id DESC LIMIT %(limit)s
