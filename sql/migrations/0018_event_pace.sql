-- supports code from: 6
--
-- Partitions of job_events follow the pace: a new one is begun when the current one has been in use for 15
-- days, or is full. Without this, at a slow pace a partition has the events of months, of which retention
-- has to delete the oldest one by one.
--
-- No partition is changed for that. The sequence skips the ids that are left in the current partition, so the
-- next event goes to the next one, which was created ahead. A bigint lasts for 38 billion years of that.

CREATE FUNCTION {schema}.event_partition_days() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 15; -- 24 partitions a year: reads of one job's events probe an index of each

-- The partitions by their first id, and since when events have gone there: the greatest is in use. This is
-- not the time of its first event: that may be deleted already, and writers may choose it.
CREATE TABLE {schema}.event_pace (
    first_id bigint      PRIMARY KEY,
    begun_at timestamptz NOT NULL
);

INSERT INTO {schema}.event_pace (first_id, begun_at)
SELECT used.first_id, coalesce((SELECT at FROM {schema}.job_events AS event WHERE event.id >= used.first_id
                                 ORDER BY event.id LIMIT 1), now())
  FROM {schema}.job_events_id_seq, {schema}.event_partition_size() AS size,
       LATERAL (SELECT (last_value - 1) / size * size + 1 AS first_id) AS used;

CREATE FUNCTION {schema}.record_event_partition(its_first_id bigint) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM {schema}.event_pace WHERE begun_at < now() - interval '60 days';
    INSERT INTO {schema}.event_pace VALUES (its_first_id, clock_timestamp()) ON CONFLICT DO NOTHING
$$;

-- begin_event_partition lets events go to the next partition if the current one has been in use for long
-- enough. A session holds its lock of the sequence until its transaction ends: when ALTER SEQUENCE, which
-- changes nothing, has the lock against them, no transaction can write to the old partition any more, and
-- nobody draws an id between the check and setval, which could otherwise go back and give an id twice.
-- The first id of the new partition is not used: last_value always is an id that was drawn (0005).
-- The result is `begun`, `enough` or `locked`.
CREATE FUNCTION {schema}.begin_event_partition() RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    used record;
BEGIN
    SELECT existing.*, pace.first_id < existing.first_id AS is_new INTO used
      FROM {schema}.job_events_id_seq, {schema}.event_partitions() AS existing,
           LATERAL (SELECT * FROM {schema}.event_pace ORDER BY first_id DESC LIMIT 1) AS pace
     WHERE last_value BETWEEN existing.first_id AND existing.last_id
       AND (pace.first_id < existing.first_id
            OR pace.first_id = existing.first_id
               AND pace.begun_at < now() - {schema}.event_partition_days() * interval '1 day'
               AND last_value > existing.first_id  -- one without an event stays in use
               AND EXISTS (SELECT FROM {schema}.event_partitions() AS next
                            WHERE next.first_id = existing.last_id + 1));
    IF NOT FOUND THEN
        RETURN 'enough';
    ELSIF NOT pg_try_advisory_xact_lock(hashtext('convertq event partitions {schema}')) THEN
        RETURN 'locked';
    ELSIF used.is_new THEN
        PERFORM {schema}.record_event_partition(used.first_id);
        RETURN 'enough';
    END IF;
    ALTER SEQUENCE {schema}.job_events_id_seq NO CYCLE;
    IF NOT (SELECT last_value BETWEEN used.first_id AND used.last_id FROM {schema}.job_events_id_seq) THEN
        RETURN 'enough';
    END IF;
    PERFORM setval('{schema}.job_events_id_seq', used.last_id + 1);
    PERFORM {schema}.record_event_partition(used.last_id + 1);
    RETURN 'begun';
END $$;

REVOKE EXECUTE ON FUNCTION {schema}.begin_event_partition(), {schema}.record_event_partition(bigint)
    FROM PUBLIC;

-- make_event_partition as in 0006, and when nothing is missing, begin_event_partition: then the result may
-- also be `begun`. They are not one step, because the locks of both together would delay writers for longer.
CREATE OR REPLACE FUNCTION {schema}.make_event_partition(ahead integer) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    first_id CONSTANT bigint := {schema}.missing_event_partition(ahead);
    last_id CONSTANT bigint := first_id + {schema}.event_partition_size() - 1;
    partition CONSTANT text := format('{schema}.job_events_%s_%s', first_id, last_id);
BEGIN
    IF first_id IS NULL THEN
        RETURN {schema}.begin_event_partition();
    ELSIF NOT pg_try_advisory_xact_lock(hashtext('convertq event partitions {schema}')) THEN
        RETURN 'locked';
    END IF;
    EXECUTE format(
        'CREATE TABLE %s (LIKE {schema}.job_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS '
        'INCLUDING INDEXES) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, '
        'autovacuum_analyze_scale_factor = 0.02)', partition);
    EXECUTE format('CREATE TRIGGER keep_all_events BEFORE TRUNCATE ON %s '
                   'FOR EACH STATEMENT EXECUTE FUNCTION {schema}.keep_events()', partition);
    LOCK TABLE {schema}.jobs IN SHARE ROW EXCLUSIVE MODE;
    LOCK TABLE {schema}.job_events_default IN ACCESS EXCLUSIVE MODE NOWAIT;
    EXECUTE format('ALTER TABLE {schema}.job_events ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)',
                   partition, first_id, last_id + 1);
    RETURN 'made';
EXCEPTION
    -- check_violation: an event has come into the default partition since missing_event_partition looked
    WHEN lock_not_available OR deadlock_detected OR duplicate_table OR check_violation THEN
        RETURN 'locked';
END $$;


-- Reads of the last events start no scan of older partitions, as far as their first id is known before they
-- start.

-- first_event_since returns an id: every event with a lower one is older than that. An hour is allowed for
-- clocks that were set, and for the time between an event and its recorded partition. 0 while it is unknown.
CREATE FUNCTION {schema}.first_event_since(age interval) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(max(first_id), 0) FROM {schema}.event_pace
     WHERE begun_at < now() - age - interval '1 hour'
$$;

-- count_events as in 0005. New: cancelled jobs, and jobs that are started over into `uploaded`; a retry that
-- was made due by hand (`now`) is not counted again; calls of a gateway other than `default` are counted for
-- it: the label of their counters begins with its name and a slash. The id above which it counts is a
-- parameter of count_events_above: that of a subquery is known only after every partition was opened. A
-- generic plan leaves out partitions when it is started, and is not made again.
CREATE FUNCTION {schema}.count_events_above(
    above bigint, after_xact xid8, after_event bigint, last_xact xid8, last_event bigint, of_jobs uuid[])
RETURNS TABLE (name text, label text, amount bigint) LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
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
           AND id > above
    ), kinds AS MATERIALIZED (
        SELECT event_type,
               CASE WHEN event_type = 'retry' AND meta ->> 'to' = 'uploaded' THEN 'uploaded'
                    WHEN event_type IN ('queued', 'retry', 'requeued', 'reclaimed') THEN 'queued'
                    WHEN event_type IN ('processing', 'complete', 'failed', 'cancelled') THEN event_type
                    WHEN event_type = 'created' THEN 'uploaded' END AS goes_to,
               CASE WHEN event_type IN ('created', 'downloaded', 'expired') THEN NULL
                    WHEN meta ? 'from' THEN meta ->> 'from'
                    WHEN event_type = 'queued' THEN 'uploaded'
                    WHEN event_type = 'processing' THEN 'queued'
                    WHEN event_type = 'retry' AND meta ->> 'reason' = 'manual' THEN 'failed'
                    ELSE 'processing' END AS comes_from,
               event_type = 'retry' AND coalesce(meta ->> 'reason', '') NOT IN ('manual', 'now') AS is_retry,
               CASE event_type WHEN 'failed' THEN coalesce(meta ->> 'error_code', 'UNKNOWN') END AS code,
               ('{0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, +Inf}'::text[])[
                   1 + width_bucket(
                       ceil(ms) - 0.5,
                       '{50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000}'::numeric[])
               ] AS at_most,  -- s; the bucket of a histogram, its upper bound included
               coalesce(nullif(substring(meta ->> 'gateway' FROM '^[a-z0-9_-]{1,32}$'), 'default') || '/', '')
                   AS gateway,
               count(*) AS number,
               sum(ms)::bigint AS total_ms
          FROM events
         GROUP BY 1, 2, 3, 4, 5, 6, 7
    ), amounts (name, label, amount) AS (
        SELECT 'jobs', goes_to, number FROM kinds WHERE goes_to IS NOT NULL
        UNION ALL SELECT 'jobs', comes_from, -number FROM kinds WHERE comes_from IS NOT NULL
        UNION ALL SELECT 'jobs_created', '', number FROM kinds WHERE event_type = 'created'
        UNION ALL SELECT 'jobs_completed', '', number FROM kinds WHERE event_type = 'complete'
        UNION ALL SELECT 'jobs_failed', code, number FROM kinds WHERE code IS NOT NULL
        UNION ALL SELECT 'jobs_cancelled', '', number FROM kinds WHERE event_type = 'cancelled'
        UNION ALL SELECT 'retries', '', number FROM kinds WHERE is_retry
        UNION ALL SELECT 'gateway_calls', gateway || at_most, number FROM kinds WHERE at_most IS NOT NULL
        UNION ALL SELECT 'gateway_ms', gateway, total_ms FROM kinds WHERE total_ms IS NOT NULL
    )
    SELECT amounts.name, amounts.label, sum(amounts.amount)::bigint FROM amounts GROUP BY 1, 2
$$;

CREATE OR REPLACE FUNCTION {schema}.count_events(
    after_xact xid8, after_event bigint, last_xact xid8, last_event bigint, of_jobs uuid[] DEFAULT NULL)
RETURNS TABLE (name text, label text, amount bigint) LANGUAGE sql STABLE AS $$
    SELECT counted.name, counted.label, counted.amount
      FROM {schema}.counters_position AS reached, {schema}.count_events_above(
               greatest(reached.restored_to, reached.floor_id),
               after_xact, after_event, last_xact, last_event, of_jobs) AS counted
$$;
