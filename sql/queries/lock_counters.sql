-- lock_counters: nobody aggregates events into the counters until this transaction ends; scrapes go on
-- Parameters: (none)
-- Rows: one
SELECT only_row FROM {schema}.counters_position FOR UPDATE
