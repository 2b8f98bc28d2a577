-- get_wal_position: how far this server is: what it has written as the primary, or replayed as a standby
-- Parameters: (none)
-- Rows: one: is_standby, position (an LSN as text; null on a standby that has replayed nothing)
SELECT pg_is_in_recovery() AS is_standby,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
           AS position
