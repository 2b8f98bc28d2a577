-- find_claimable_job: whether a claim would find a job, for a supervisor that may have missed one
-- after_*, entries, seconds, recent: as in claim_job. It is ordered as the claim is, so that the planner
-- takes that index.
-- Parameters: route, after_priority, after_turn, after_created_at, after_id
-- Rows: one: waited (seconds since the job became claimable; null: there is none), entries, seconds, recent
WITH before AS MATERIALIZED (
    SELECT {schema}.entries_read() AS read
), found AS MATERIALIZED (
    SELECT updated_at FROM {schema}.jobs
     WHERE (SELECT read >= 0 FROM before) AND status = 'queued' AND retry_after IS NULL
       AND route = %(route)s AND ({claim_order})
           >= (%(after_priority)s, %(after_turn)s, %(after_created_at)s::timestamptz, %(after_id)s)
     ORDER BY {claim_order} LIMIT 1
)
SELECT extract(epoch FROM clock_timestamp() - (SELECT updated_at FROM found))::double precision AS waited,
       {schema}.entries_read() - before.read AS entries,
       extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision AS seconds,
       (now() - interval '5 s')::text AS recent
  FROM before
