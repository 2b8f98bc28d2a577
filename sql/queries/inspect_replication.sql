-- inspect_replication: which standbys follow this server, how far behind, and whether commits wait for one
-- A role without pg_read_all_stats (pg_monitor) sees that there is a standby, and nothing else of it.
-- Parameters: (none)
-- Rows: one: commit_mode, synchronous_names, standbys (a JSON array)
SELECT current_setting('synchronous_commit') AS commit_mode,
       current_setting('synchronous_standby_names') AS synchronous_names,
       coalesce(jsonb_agg(jsonb_build_object(
           'name', application_name, 'state', state, 'sync_state', sync_state,
           'behind_bytes', CASE WHEN NOT pg_is_in_recovery()
               THEN pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint END,
           'behind_seconds', extract(epoch FROM replay_lag)::float8)), '[]') AS standbys
  FROM pg_stat_replication
 WHERE state IS DISTINCT FROM 'backup'
