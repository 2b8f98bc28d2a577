-- end_sweep: records that pause_jobs has seen the whole index since a time
-- Parameters: ids (of find_pauses_to_sweep), began
-- Rows: (none)
UPDATE {schema}.pauses SET swept_at = %(began)s WHERE id = ANY (%(ids)s::bigint[])
