-- Counters: a scrape reads them instead of counting jobs. They stay when the events that they count are
-- deleted.
--
-- Events are aggregated into `counters` in the order (xact_id, id). Only events of transactions below the
-- oldest one that still runs are aggregated, so none can appear before the position that has been reached.
-- A reader adds the events that are not aggregated yet, in the same snapshot, and so is exact at any time.
--
-- Aggregation reads only the newest partitions of job_events, because the id of every event that is not
-- aggregated is above `floor_id` of counters_position (0001). Proof:
--   1. event_mark reads the last id that was drawn from the sequence (mark_id), and only then gets a
--      transaction id (mark_xact).
--   2. Transaction ids are assigned in ascending order, so a transaction whose id is at least mark_xact got
--      it after that reading.
--   3. An event's id is drawn after its transaction has its id: xact_id is the first column (0001), and a
--      statement of convertq writes the job first. The sequence only ascends and has no cache, so by 2 the
--      event's id is above mark_id.
--   4. Once the position has reached mark_xact, every event that is not aggregated is of a transaction of 2,
--      and by 3 has an id above mark_id, which becomes floor_id in the same statement.
-- Only a program that writes `id` or `xact_id` itself could break this; roles.sql gives nobody the right to.

-- This lock comes first, as every writer locks jobs first: transactions that have written jobs end before
-- it, and later ones wait, so that recount_jobs below misses none.
LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE;

CREATE TABLE {schema}.counters (
    name  text   NOT NULL,
    label text   NOT NULL DEFAULT '',
    value bigint NOT NULL,

    PRIMARY KEY (name, label)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);


-- event_mark returns the pair of step 1 above, and no row in a transaction that has an id already.
CREATE FUNCTION {schema}.event_mark() RETURNS TABLE (xact_id xid8, event_id bigint) LANGUAGE plpgsql AS $$
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        event_id := (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END
                       FROM {schema}.job_events_id_seq);
        xact_id := pg_current_xact_id();
        RETURN NEXT;
    END IF;
END $$;


-- count_events returns what the events in a range add to each counter; with of_jobs, only the events of these
-- jobs. The range must not begin before the position. It is the only function that knows what an event means:
-- a change of status moves one job from its old state (meta.from, or the usual one) to the new one.
-- Sequential scans and JIT are off, because the planner cannot know how few rows the range has: it would read
-- the whole table, and compile the plan first.
CREATE FUNCTION {schema}.count_events(
    after_xact xid8, after_event bigint, last_xact xid8, last_event bigint, of_jobs uuid[] DEFAULT NULL)
RETURNS TABLE (name text, label text, amount bigint) LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off AS $$
    WITH events AS (
        SELECT event_type, meta,
               CASE jsonb_typeof(meta -> 'gateway_ms') WHEN 'number'  -- other programs may write anything
                   THEN least(greatest((meta ->> 'gateway_ms')::numeric, 0), 1e9) END AS ms
          FROM (SELECT id, xact_id, event_type, meta FROM {schema}.job_events WHERE of_jobs IS NULL
                UNION ALL
                SELECT id, xact_id, event_type, meta FROM {schema}.job_events
                 WHERE of_jobs IS NOT NULL AND job_id = ANY (of_jobs)) AS event
         WHERE (xact_id, id) > (after_xact, after_event) AND (xact_id, id) <= (last_xact, last_event)
           AND xact_id BETWEEN after_xact AND last_xact  -- implied, for the planner: the range is short
           AND id > (SELECT greatest(restored_to, floor_id) FROM {schema}.counters_position)
    ), kinds AS MATERIALIZED (
        SELECT event_type,
               CASE WHEN event_type IN ('queued', 'retry', 'requeued', 'reclaimed') THEN 'queued'
                    WHEN event_type IN ('processing', 'complete', 'failed') THEN event_type
                    WHEN event_type = 'created' THEN 'uploaded' END AS goes_to,
               CASE WHEN event_type IN ('created', 'downloaded', 'expired') THEN NULL
                    WHEN meta ? 'from' THEN meta ->> 'from'
                    WHEN event_type = 'queued' THEN 'uploaded'
                    WHEN event_type = 'processing' THEN 'queued'
                    WHEN event_type = 'retry' AND meta ->> 'reason' = 'manual' THEN 'failed'
                    ELSE 'processing' END AS comes_from,
               event_type = 'retry' AND meta ->> 'reason' IS DISTINCT FROM 'manual' AS is_retry,
               CASE event_type WHEN 'failed' THEN coalesce(meta ->> 'error_code', 'UNKNOWN') END AS code,
               ('{0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, +Inf}'::text[])[
                   1 + width_bucket(
                       ceil(ms) - 0.5,
                       '{50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000}'::numeric[])
               ] AS at_most,  -- s; the bucket of a histogram, its upper bound included
               count(*) AS number,
               sum(ms)::bigint AS total_ms
          FROM events
         GROUP BY 1, 2, 3, 4, 5, 6
    ), amounts (name, label, amount) AS (
        SELECT 'jobs', goes_to, number FROM kinds WHERE goes_to IS NOT NULL
        UNION ALL SELECT 'jobs', comes_from, -number FROM kinds WHERE comes_from IS NOT NULL
        UNION ALL SELECT 'jobs_created', '', number FROM kinds WHERE event_type = 'created'
        UNION ALL SELECT 'jobs_completed', '', number FROM kinds WHERE event_type = 'complete'
        UNION ALL SELECT 'jobs_failed', code, number FROM kinds WHERE code IS NOT NULL
        UNION ALL SELECT 'retries', '', number FROM kinds WHERE is_retry
        UNION ALL SELECT 'gateway_calls', at_most, number FROM kinds WHERE at_most IS NOT NULL
        UNION ALL SELECT 'gateway_ms', '', total_ms FROM kinds WHERE total_ms IS NOT NULL
    )
    SELECT amounts.name, amounts.label, sum(amounts.amount)::bigint FROM amounts GROUP BY 1, 2
$$;


-- counted_so_far is what a scrape reads: the counters and the events that are not aggregated yet, in one
-- snapshot.
CREATE FUNCTION {schema}.counted_so_far() RETURNS TABLE (name text, label text, value bigint)
LANGUAGE sql STABLE AS $$
    SELECT name, label, sum(value)::bigint
      FROM (SELECT counter.name, counter.label, counter.value FROM {schema}.counters AS counter
            UNION ALL
            SELECT fresh.name, fresh.label, fresh.amount
              FROM {schema}.counters_position AS reached,
                   {schema}.count_events(
                       reached.xact_id, reached.event_id, pg_snapshot_xmax(pg_current_snapshot()), 0) AS fresh
           ) AS parts (name, label, value)
     GROUP BY 1, 2
$$;


-- Retention deletes only events for which this is true; otherwise the counters would lose them.
CREATE FUNCTION {schema}.is_aggregated(its_xact xid8, its_id bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (its_xact, its_id) <= (reached.xact_id, reached.event_id) OR its_id <= reached.restored_to
      FROM {schema}.counters_position AS reached
$$;


-- recount_jobs sets the number of jobs in each status to what the table has, for jobs that were written
-- while triggers were disabled and for events that a program wrote twice. No writer waits for it, with one
-- exception: a dump that was restored into a younger cluster has transaction ids from its future. Then the
-- function locks job_events, counts all restored events, and starts the aggregation again from this
-- cluster's ids. It has its owner's rights, because a worker's role may not lock that table.
CREATE FUNCTION {schema}.recount_jobs() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reached {schema}.counters_position;
BEGIN
    SELECT * INTO reached FROM {schema}.counters_position FOR UPDATE;  -- nobody aggregates meanwhile
    IF reached.xact_id >= pg_snapshot_xmax(pg_current_snapshot()) THEN
        LOCK TABLE {schema}.job_events IN SHARE MODE;
        INSERT INTO {schema}.counters AS counter
        SELECT * FROM {schema}.count_events(reached.xact_id, reached.event_id, '9223372036854775807', 0)
        ON CONFLICT (name, label) DO UPDATE SET value = counter.value + excluded.value;
        UPDATE {schema}.counters_position
           SET xact_id = pg_snapshot_xmin(pg_current_snapshot()), event_id = 0,
               restored_to = newest.id, floor_id = newest.id, mark_xact = NULL, mark_id = NULL
          FROM (SELECT coalesce(max(id), 0) AS id FROM {schema}.job_events) AS newest;
    END IF;
    INSERT INTO {schema}.counters AS counter
    SELECT 'jobs', coalesce(real.status, counted.label), coalesce(real.jobs, 0) - coalesce(counted.value, 0)
      FROM (SELECT status, count(*) AS jobs FROM {schema}.jobs GROUP BY status) AS real
      FULL JOIN (SELECT label, value FROM {schema}.counted_so_far() WHERE name = 'jobs') AS counted
        ON counted.label = real.status
    ON CONFLICT (name, label) DO UPDATE SET value = counter.value + excluded.value;
END $$;


-- Because of its owner's rights, only the roles that need the function may execute it: see roles.sql.
REVOKE EXECUTE ON FUNCTION {schema}.recount_jobs() FROM PUBLIC;


-- Existing events are aggregated from the first one on; existing jobs without events are counted as they are.
SELECT {schema}.recount_jobs();
