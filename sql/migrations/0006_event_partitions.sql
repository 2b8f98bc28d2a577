-- The partitions of job_events: how they are created ahead of the writers, and dropped by retention.
--
-- Creating and dropping needs the rights of the tables' owner, and the worker's role, which calls these
-- functions, owns nothing. Therefore they are SECURITY DEFINER with a fixed search_path, and can do nothing
-- else. Neither ever waits longer than 100 ms for a lock, because writers queue behind it: a caller that gets
-- `locked` tries again later.

-- How many ids a partition has. 10 million events take about 3 GB with their indexes, which one statement can
-- drop in milliseconds and a check of their age reads in seconds; 100 million events are ten partitions, so
-- that reads of one job's events still probe few indexes. At 1,000 jobs a second it fills in 40 minutes.
CREATE FUNCTION {schema}.event_partition_size() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 10000000;

-- The partitions, without the default one. The name says which ids it has: job_events_1_10000000.
CREATE FUNCTION {schema}.event_partitions() RETURNS TABLE (name text, first_id bigint, last_id bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT relname::text, bounds[1]::bigint, bounds[2]::bigint - 1
      FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid,
           regexp_match(pg_get_expr(relpartbound, inhrelid), $r$FROM \('(\d+)'\) TO \('(\d+)'\)$r$) AS bounds
     WHERE inhparent = '{schema}.job_events'::regclass AND bounds IS NOT NULL
$$;

-- missing_event_partition returns the first id of the first partition that is missing: the one that events go
-- to now, and the next `ahead` ones. A range of which the default partition has events already stays there:
-- a partition for it could only be created after moving them, while writers wait.
CREATE FUNCTION {schema}.missing_event_partition(ahead integer) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT wanted.first_id
      FROM {schema}.job_events_id_seq, {schema}.event_partition_size() AS size,
           generate_series(0, ahead) AS number,
           LATERAL (SELECT ((last_value - 1) / size + number) * size + 1 AS first_id) AS wanted
     WHERE NOT EXISTS (SELECT FROM {schema}.event_partitions() AS existing
                        WHERE existing.first_id < wanted.first_id + size
                          AND existing.last_id >= wanted.first_id)
       AND NOT EXISTS (SELECT FROM {schema}.job_events_default AS event
                        WHERE event.id >= wanted.first_id AND event.id < wanted.first_id + size)
     ORDER BY wanted.first_id LIMIT 1
$$;

-- make_event_partition creates one partition, if one is missing. ATTACH does not block writers of job_events,
-- but the foreign key needs a lock of jobs against writers: it is taken after the table is built, and held
-- for a few milliseconds, until the commit. The default partition is locked without waiting, because at that
-- point writers do wait. The result is `made`, `enough`, or `locked` when another session was in the way.
CREATE FUNCTION {schema}.make_event_partition(ahead integer) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    first_id CONSTANT bigint := {schema}.missing_event_partition(ahead);
    last_id CONSTANT bigint := first_id + {schema}.event_partition_size() - 1;
    partition CONSTANT text := format('{schema}.job_events_%s_%s', first_id, last_id);
BEGIN
    IF first_id IS NULL THEN
        RETURN 'enough';
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

-- drop_event_partition drops a partition whose events the caller has found to be old, in statements that saw
-- everything written before the transaction `unchanged_since`. It stays if it is still being filled, if an
-- event was written after that, or if one is not aggregated: the counters would lose it. An event that comes
-- later, because its id was drawn long ago, goes to the default partition. The locks stop all writers of
-- events, so the checks under them are two index lookups. The result is `dropped`, `kept` or `locked`.
CREATE FUNCTION {schema}.drop_event_partition(partition text, unchanged_since xid8) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    known CONSTANT text := (
        SELECT format('{schema}.%I', name) FROM {schema}.event_partitions(), {schema}.job_events_id_seq
         WHERE name = partition AND last_id < last_value);
    keeps boolean;
BEGIN
    IF known IS NULL THEN
        RETURN 'kept';
    END IF;
    LOCK TABLE ONLY {schema}.job_events IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', known);
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM %1$s WHERE xact_id >= $1) OR EXISTS ('
        '    SELECT FROM {schema}.counters_position AS reached, LATERAL ('
        '        SELECT FROM %1$s AS event'
        '         WHERE (event.xact_id, event.id) > (reached.xact_id, reached.event_id)'
        '           AND event.id > reached.restored_to LIMIT 1) AS uncounted)', known)
       INTO keeps USING unchanged_since;
    IF keeps THEN
        RETURN 'kept';
    END IF;
    EXECUTE format('DROP TABLE %s', known);
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RETURN 'locked';
END $$;

-- Because of their owner's rights, only the worker's role may execute them: see roles.sql.
REVOKE EXECUTE ON FUNCTION {schema}.missing_event_partition(integer), {schema}.make_event_partition(integer),
    {schema}.drop_event_partition(text, xid8) FROM PUBLIC;


-- The first one, and three more. `convertq migrate`, `convertq cleanup` and every supervisor create the next.
SELECT {schema}.make_event_partition(3) FROM generate_series(1, 4);
