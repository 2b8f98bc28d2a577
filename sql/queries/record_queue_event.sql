-- record_queue_event: appends to the log of the queue, in the transaction of what it records
-- Parameters: event_type, meta (JSON)
-- Rows: (none)
INSERT INTO {schema}.queue_events (event_type, meta) VALUES (%(event_type)s, %(meta)s::jsonb)
