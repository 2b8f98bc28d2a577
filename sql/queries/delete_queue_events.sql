-- delete_queue_events: what find_old_queue_events found; in one transaction with allow_cleanup
-- Parameters: ids
-- Rows: (none)
DELETE FROM {schema}.queue_events WHERE id = ANY (%(ids)s::bigint[])
