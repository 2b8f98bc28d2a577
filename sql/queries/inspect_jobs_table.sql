-- inspect_jobs_table: how large the jobs table is, and how many of its rows are dead
-- Parameters: (none)
-- Rows: one: estimated_rows, live_rows, dead_rows, vacuumed_at, autovacuum_is_off
SELECT class.reltuples::bigint AS estimated_rows, stat.n_live_tup AS live_rows, stat.n_dead_tup AS dead_rows,
       greatest(stat.last_vacuum, stat.last_autovacuum) AS vacuumed_at,
       coalesce(class.reloptions @> ARRAY['autovacuum_enabled=false'], false) AS autovacuum_is_off
  FROM pg_class AS class JOIN pg_stat_all_tables AS stat ON stat.relid = class.oid
 WHERE class.oid = '{schema}.jobs'::regclass
