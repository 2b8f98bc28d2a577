-- stop_waiting: leaves the place, and passes a notification that has arrived on to another supervisor
-- Parameters: place
-- Rows: one: woken, how many supervisors were notified
WITH left_behind AS MATERIALIZED (
    SELECT {schema}.stop_waiting(%(place)s)
)
SELECT {schema}.wake_servers(1) AS woken FROM left_behind
