-- supports code from: 6
--
-- Fair share: owners take turns within a priority of a route, in proportion to their weight, and the running
-- jobs of one owner may be limited. The settings in force are the row of fair_share (0013).
--
-- jobs.turn comes before created_at in the claim's order, so a claim needs to know nothing of owners. It is
--   0         without fair share and without a limit;
--   -1        with a limit alone: the jobs are in jobs_by_owner_and_turn then, and still in order of age;
--   below -1  with fair share. The first turn is -2^62; a turn later is STRIDE / weight more.
-- When fair share begins, jobs that have a turn go before those that have none yet, so that a long queue
-- which is being given turns (renew_turns) does not keep other owners waiting; when it ends, older jobs go
-- before new ones.
--
-- Code of an earlier release works with this: its jobs get their turns by guard_job, too. Its claims do not
-- know the limit of an owner.

-- What each supervisor reads from its configuration, by which `doctor` finds hosts that differ.
ALTER TABLE {schema}.servers
    ADD COLUMN takes_turns boolean NOT NULL DEFAULT false,
    ADD COLUMN owner_max_running integer NOT NULL DEFAULT 0;

-- The weight of owners; one without a row has 1. A weight is in force for jobs that are queued after it is
-- written. The empty name stands for all jobs without an owner.
CREATE TABLE {schema}.owners (
    owner_session_id text             PRIMARY KEY,
    weight           double precision NOT NULL DEFAULT 1,

    CONSTRAINT weight_is_positive CHECK (weight > 0 AND weight < 'infinity')
);

-- The virtual time of each priority of a route: no job that is queued gets an earlier turn. Supervisors move
-- it to the first queued job every second (advance_turns), so that guard_job need not read the entries of
-- jobs that were claimed before, which stay in the index while a session holds an old snapshot.
CREATE TABLE {schema}.turns (
    route    text   NOT NULL,
    priority bigint NOT NULL, -- negated, as in the index
    turn     bigint NOT NULL,

    PRIMARY KEY (route, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);


-- next_turn is one step after the virtual time, or after the last queued job of the same owner. An owner who
-- has none goes just before those who have, so that nobody has two turns before the first one of another. It
-- locks nothing: simultaneous submissions of an owner may get the same turn. Within one statement that queues
-- many jobs, each sees those before it. The plans are generic, because PostgreSQL would otherwise plan each
-- statement again for each call.
CREATE FUNCTION {schema}.next_turn(its_route text, its_priority bigint, its_owner text) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    stride CONSTANT double precision := 1000000;
    step CONSTANT bigint := greatest(1, least(1000 * stride, stride / coalesce(
        (SELECT weight FROM {schema}.owners WHERE owner_session_id = its_owner), 1)));
    virtual_time bigint := coalesce(
        (SELECT turn FROM {schema}.turns WHERE route = its_route AND priority = its_priority),
        -4611686018427387904);
BEGIN
    virtual_time := coalesce(
        (SELECT turn FROM {schema}.jobs
          WHERE status = 'queued' AND retry_after IS NULL AND route = its_route
            AND -priority::bigint = its_priority AND turn >= virtual_time AND turn < -1
          ORDER BY turn, created_at, id LIMIT 1), virtual_time);
    RETURN least(-2, step + coalesce(
        (SELECT turn FROM {schema}.jobs
          WHERE status = 'queued' AND retry_after IS NULL AND turn <> 0
            AND coalesce(owner_session_id, '') = its_owner AND route = its_route
            AND -priority::bigint = its_priority AND turn >= virtual_time AND turn < -1
          ORDER BY turn DESC LIMIT 1), virtual_time - 1));
END $$;


-- share_queue gives a job that is claimable its turn, or keeps it out of the claim's index. guard_job calls
-- it only with fair share or a limit. A job keeps its turn while it stays in the index, and when it was begun
-- before: a retry does not lose its place. A new run, and a change of what the turn was given for, get a new
-- one. over_cap: where jobs of the same owner wait outside the index because very many of them are in it
-- (limit_owners), later ones wait behind them; release_owners lets them in again.
CREATE FUNCTION {schema}.share_queue(job {schema}.jobs, old {schema}.jobs) RETURNS {schema}.jobs
LANGUAGE plpgsql AS $$
DECLARE
    share {schema}.fair_share;
    its_owner CONSTANT text := coalesce(job.owner_session_id, '');
    is_begun CONSTANT boolean := coalesce(old.run = job.run AND job.started_at IS NOT NULL, false);
    is_same CONSTANT boolean := coalesce(
        old.route = job.route AND old.priority = job.priority AND job.turn <> 0
        AND old.owner_session_id IS NOT DISTINCT FROM job.owner_session_id, false);
BEGIN
    SELECT * INTO share FROM {schema}.fair_share;
    IF share.owner_max_running > 0 AND NOT is_begun AND (
           old.id IS NULL OR old.status <> 'queued' OR old.retry_after IS NOT NULL AND NOT old.over_cap) THEN
        IF EXISTS (
            SELECT FROM {schema}.jobs
             WHERE over_cap AND coalesce(owner_session_id, '') = its_owner AND route = job.route
               AND -priority::bigint = -job.priority::bigint) THEN
            job.over_cap := true;
            job.retry_after := 'infinity';
            RETURN job;
        END IF;
    END IF;
    IF NOT share.takes_turns THEN
        job.turn := -1;
    ELSIF is_same AND old.turn < -1
          AND (is_begun OR old.status = 'queued' AND old.retry_after IS NULL) THEN
        job.turn := old.turn;
    ELSE
        job.turn := {schema}.next_turn(job.route, -job.priority::bigint, its_owner);
    END IF;
    RETURN job;
END $$;


-- owners_at_cap lists the owners that have so many running jobs. The claim leaves their jobs out.
CREATE FUNCTION {schema}.owners_at_cap(cap integer) RETURNS text[] LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    RETURN (SELECT array_agg(owner)
              FROM (SELECT coalesce(owner_session_id, '') AS owner FROM {schema}.jobs
                     WHERE status = 'processing' GROUP BY 1 HAVING count(*) >= cap) AS at_cap);
END $$;

CREATE FUNCTION {schema}.owner_is_at_cap(its_owner text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    cap CONSTANT integer := (SELECT owner_max_running FROM {schema}.fair_share);
BEGIN
    RETURN cap > 0 AND coalesce(coalesce(its_owner, '') = ANY ({schema}.owners_at_cap(cap)), false);
END $$;


-- A role that writes jobs needs the rights for what guard_job reads. roles.sql grants them too, but is run
-- after the migration: until then the programs of a running installation could not submit.
DO $$
DECLARE
    writer text;
BEGIN
    FOR writer IN
        SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
          FROM (SELECT relacl AS rights FROM pg_class WHERE oid = '{schema}.jobs'::regclass
                UNION ALL
                SELECT attacl FROM pg_attribute WHERE attrelid = '{schema}.jobs'::regclass) AS jobs,
               aclexplode(rights)
         WHERE privilege_type IN ('INSERT', 'UPDATE')
    LOOP
        EXECUTE 'GRANT SELECT ON {schema}.mapping_routes, {schema}.pauses, {schema}.fair_share, '
                '{schema}.owners, {schema}.turns TO ' || writer;
    END LOOP;
END $$;
