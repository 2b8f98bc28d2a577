-- wake_servers: notifies other supervisors that wait, for a host whose workers are all busy
-- Parameters: at_most
-- Rows: one: woken, how many supervisors were notified
SELECT {schema}.wake_servers(%(at_most)s) AS woken
