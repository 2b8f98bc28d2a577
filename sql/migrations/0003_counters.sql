-- Counters: what a scrape reads instead of counting jobs. They outlive the events that they were counted from.
--
-- Events are folded into `counters` in the order (xact_id, id). Only those of transactions below the oldest one that
-- still runs are folded, so none can appear behind the place that folding has reached. A reader adds what is not folded
-- yet, in the same snapshot, and so is exact at any moment.

-- First, in the order of every writer: what has begun ends before, and what comes later waits, so nothing is missed.
LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE;

CREATE INDEX job_events_to_fold ON {schema}.job_events (xact_id, id);
-- Throughput, success rate and errors of the last hours.
CREATE INDEX job_events_outcomes ON {schema}.job_events (event_type, at) WHERE event_type IN ('complete', 'failed');
-- How long the first in the queue has waited; a manual retry begins anew, so created_at would not tell.
CREATE INDEX jobs_queued_since ON {schema}.jobs (queued_at) WHERE status = 'queued';


CREATE TABLE {schema}.counters (
    name  text   NOT NULL,
    label text   NOT NULL DEFAULT '',
    value bigint NOT NULL,

    PRIMARY KEY (name, label)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- Retention may delete an event only when it is folded: see is_folded below.
CREATE TABLE {schema}.counters_place (
    only_row    boolean PRIMARY KEY DEFAULT true,
    xact_id     xid8    NOT NULL,           -- folded up to this transaction,
    event_id    bigint  NOT NULL,           -- and in it up to this event
    restored_to bigint  NOT NULL DEFAULT 0, -- up to this event, folded whatever its xact_id: see recount_jobs

    CONSTRAINT there_is_one_place CHECK (only_row)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);


-- What the events in a range add to each counter. The one place that knows what an event means:
-- a status change takes one job from where it was (meta.from, or the usual one) to where it goes.
-- The planner cannot know how few rows the range has: it would read the whole table, and compile the plan first.
CREATE FUNCTION {schema}.count_events(after_xact xid8, after_event bigint, last_xact xid8, last_event bigint)
RETURNS TABLE (name text, label text, amount bigint) LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off AS $$
    WITH events AS (
        SELECT event_type, meta,
               CASE jsonb_typeof(meta -> 'gateway_ms') WHEN 'number'  -- another program may have written anything
                   THEN least(greatest((meta ->> 'gateway_ms')::numeric, 0), 1e9) END AS ms
          FROM {schema}.job_events
         WHERE (xact_id, id) > (after_xact, after_event) AND (xact_id, id) <= (last_xact, last_event)
           AND id > (SELECT restored_to FROM {schema}.counters_place)
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
               (ARRAY['0.05', '0.1', '0.25', '0.5', '1.0', '2.5', '5.0', '10.0', '30.0', '60.0', '120.0', '+Inf'])[
                   1 + width_bucket(ceil(ms) - 0.5, ARRAY[50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000]::numeric[])
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


-- What a scrape reads: the counters, and what is not folded yet, in the snapshot of the statement that asks.
CREATE FUNCTION {schema}.counted_so_far() RETURNS TABLE (name text, label text, value bigint) LANGUAGE sql STABLE AS $$
    SELECT name, label, sum(value)::bigint
      FROM (SELECT counter.name, counter.label, counter.value FROM {schema}.counters AS counter
            UNION ALL
            SELECT fresh.name, fresh.label, fresh.amount
              FROM {schema}.counters_place AS place,
                   {schema}.count_events(place.xact_id, place.event_id, pg_snapshot_xmax(pg_current_snapshot()), 0) AS fresh
           ) AS parts (name, label, value)
     GROUP BY 1, 2
$$;


-- Retention: DELETE … WHERE at < … AND is_folded(xact_id, id), or what it counted would be lost.
CREATE FUNCTION {schema}.is_folded(its_xact xid8, its_id bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (its_xact, its_id) <= (place.xact_id, place.event_id) OR its_id <= place.restored_to
      FROM {schema}.counters_place AS place
$$;


-- Sets convertq_jobs to what the table says, without keeping any writer waiting: count(*) less what is not folded yet.
-- For jobs that were written around the triggers, and events that a program wrote twice.
-- A dump that was loaded into a younger cluster brings transaction ids from its future. Only then writers wait a moment:
-- whatever was loaded is counted as it is, and folding starts anew from this cluster's ids.
-- With its owner's rights: a worker's role may not lock out the other writers of events.
CREATE FUNCTION {schema}.recount_jobs() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place {schema}.counters_place;
BEGIN
    SELECT * INTO place FROM {schema}.counters_place FOR UPDATE;  -- nobody folds meanwhile
    IF place.xact_id >= pg_snapshot_xmax(pg_current_snapshot()) THEN
        LOCK TABLE {schema}.job_events IN SHARE MODE;
        INSERT INTO {schema}.counters AS counter
        SELECT * FROM {schema}.count_events(place.xact_id, place.event_id, '9223372036854775807', 0)
        ON CONFLICT (name, label) DO UPDATE SET value = counter.value + excluded.value;
        UPDATE {schema}.counters_place
           SET xact_id = pg_snapshot_xmin(pg_current_snapshot()), event_id = 0,
               restored_to = (SELECT coalesce(max(id), 0) FROM {schema}.job_events);
    END IF;
    INSERT INTO {schema}.counters AS counter
    SELECT 'jobs', coalesce(real.status, counted.label), coalesce(real.jobs, 0) - coalesce(counted.value, 0)
      FROM (SELECT status, count(*) AS jobs FROM {schema}.jobs GROUP BY status) AS real
      FULL JOIN (SELECT label, value FROM {schema}.counted_so_far() WHERE name = 'jobs') AS counted ON counted.label = real.status
    ON CONFLICT (name, label) DO UPDATE SET value = counter.value + excluded.value;
END $$;


-- What is there already is folded from the first event on; jobs without events are counted as they are.
INSERT INTO {schema}.counters_place (xact_id, event_id) VALUES ('0', 0);
SELECT {schema}.recount_jobs();
