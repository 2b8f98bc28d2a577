-- delete_jobs: any state -> gone, with every row of these jobs
-- The fence of a worker that runs one of them finds nothing from now on, and the worker is notified. What
-- their events count and is not aggregated yet goes into the counters, and each state has so many jobs
-- less: the totals stay, the gauge goes down. A trial of the breaker ends without success.
-- Parameters: ids (locked by lock_expired_jobs or lock_jobs; after allow_cleanup and lock_counters)
-- Rows: one per job: id, count (of workers notified)
WITH changed AS MATERIALIZED (
    SELECT name, label, sum(amount)::bigint AS amount
      FROM (SELECT fresh.name, fresh.label, fresh.amount
              FROM {schema}.counters_position AS reached, {schema}.count_events(
                       reached.xact_id, reached.event_id, pg_snapshot_xmax(pg_current_snapshot()), 0,
                       %(ids)s::uuid[]) AS fresh
            UNION ALL
            SELECT 'jobs', status, -1 FROM {schema}.jobs WHERE id = ANY (%(ids)s::uuid[])
           ) AS parts (name, label, amount)
     GROUP BY 1, 2
), counted AS (
    INSERT INTO {schema}.counters AS counter (name, label, value)
    SELECT name, label, amount FROM changed WHERE amount <> 0
    ON CONFLICT (name, label) DO UPDATE SET value = counter.value + excluded.value
), notified AS MATERIALIZED (
    SELECT pg_notify({schema}.cancel_channel(), leased_by) FROM {schema}.jobs
     WHERE id = ANY (%(ids)s::uuid[]) AND leased_by IS NOT NULL
), trial AS (
    UPDATE {schema}.circuit_breaker
       SET state = 'open', probe_by = NULL, trial_job = NULL, probe_after = now() + cooldown
     WHERE state = 'half_open' AND trial_job = ANY (%(ids)s::uuid[])
), events AS (
    DELETE FROM {schema}.job_events WHERE job_id = ANY (%(ids)s::uuid[])
), progress AS (
    DELETE FROM {schema}.job_progress WHERE job_id = ANY (%(ids)s::uuid[])
), links AS (
    DELETE FROM {schema}.job_dependencies
     WHERE job_id = ANY (%(ids)s::uuid[]) OR depends_on = ANY (%(ids)s::uuid[])
)
DELETE FROM {schema}.jobs WHERE id = ANY (%(ids)s::uuid[]) RETURNING id, (SELECT count(*) FROM notified)
