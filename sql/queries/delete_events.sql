-- delete_events: what lock_old_events found; in one transaction with it and with allow_cleanup
-- Parameters: ids
-- Rows: (none)
DELETE FROM {schema}.job_events WHERE id = ANY (%(ids)s::bigint[])
