-- Dependencies: a job stays `uploaded` until all jobs that it depends on are complete.

-- Two transactions that complete jobs at the same time do not see each other. So the dependant is locked
-- first, and checked afterwards with a new snapshot (a volatile function takes one for each of its
-- statements). A job that is released this way has an event that shows why it was queued.
CREATE FUNCTION {schema}.queue_when_dependencies_are_complete(dependants uuid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.jobs
      WHERE id = ANY (dependants) AND status = 'uploaded' ORDER BY id FOR NO KEY UPDATE;
    WITH released AS (
        UPDATE {schema}.jobs AS dependant SET status = 'queued', queued_at = now()
         WHERE id = ANY (dependants) AND status = 'uploaded'
           AND NOT EXISTS (
               SELECT FROM {schema}.job_dependencies AS dependency
                 JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
                WHERE dependency.job_id = dependant.id AND needed.status <> 'complete')
        RETURNING id
    )
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'queued', '{"by": "dependencies"}' FROM released;
END $$;

-- release_slice releases the first 1,000 of a complete job's dependants whose ids are in a range, and
-- returns the last id that it has checked. The completing transaction waits only 500 ms for their locks: a
-- program that keeps one locked must not delay the job that others need. The rest is recorded for
-- release_dependants.
CREATE FUNCTION {schema}.release_slice(completed uuid, first_job uuid, last_job uuid, waits boolean)
RETURNS uuid LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
    slice uuid[] := ARRAY(
        SELECT dependency.job_id FROM {schema}.job_dependencies AS dependency
         WHERE dependency.depends_on = completed
           AND dependency.job_id BETWEEN release_slice.first_job AND release_slice.last_job
         ORDER BY dependency.job_id LIMIT 1001);
    next_job uuid := slice[1001];
    locked uuid[];
BEGIN
    slice := slice[1:1000];
    IF waits THEN
        BEGIN
            PERFORM FROM {schema}.jobs WHERE id = ANY (slice) AND status = 'uploaded' ORDER BY id FOR UPDATE;
            locked := slice;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            NULL;
        END;
    END IF;
    IF locked IS NULL THEN
        locked := ARRAY(SELECT id FROM {schema}.jobs WHERE id = ANY (slice) AND status = 'uploaded'
                         ORDER BY id FOR UPDATE SKIP LOCKED);
        INSERT INTO {schema}.dependants_to_release
        SELECT completed, id, id FROM {schema}.jobs
         WHERE id = ANY (slice) AND status = 'uploaded' AND id NOT IN (SELECT unnest(locked))
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM {schema}.queue_when_dependencies_are_complete(locked);
    IF next_job IS NOT NULL THEN
        INSERT INTO {schema}.dependants_to_release AS kept VALUES (completed, next_job, last_job)
        ON CONFLICT ON CONSTRAINT dependants_to_release_pkey
        DO UPDATE SET last_job = greatest(kept.last_job, excluded.last_job);
    END IF;
    RETURN slice[cardinality(slice)];
END $$;

-- release_dependants releases about 1,000 of the dependants that completing transactions have left, in the
-- order of the primary key, starting after a position in it. It returns the position to continue from, or
-- nulls at the end: one pass tries a locked dependant once.
CREATE FUNCTION {schema}.release_dependants(INOUT after_depends_on uuid, INOUT after_job uuid)
LANGUAGE plpgsql AS $$
DECLARE
    left_over {schema}.dependants_to_release;
    checked integer := 0;
BEGIN
    FOR left_over IN
        SELECT * FROM {schema}.dependants_to_release AS kept
         WHERE (kept.depends_on, kept.first_job) > (after_depends_on, after_job)
         ORDER BY kept.depends_on, kept.first_job LIMIT 1000 FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM {schema}.dependants_to_release AS kept
         WHERE kept.depends_on = left_over.depends_on AND kept.first_job = left_over.first_job;
        after_depends_on := left_over.depends_on;
        after_job := {schema}.release_slice(
            left_over.depends_on, left_over.first_job, left_over.last_job, waits => false);
        after_job := coalesce(after_job, left_over.last_job);
        checked := checked + CASE WHEN left_over.first_job = left_over.last_job THEN 1 ELSE 1000 END;
        IF checked >= 1000 THEN
            RETURN;
        END IF;
    END LOOP;
    after_depends_on := NULL;
    after_job := NULL;
END $$;

-- A dependency on a job that is already complete must not leave the dependant waiting: the shared lock
-- waits for a completion that is not committed yet, or makes it wait for this transaction. needs_follow_up
-- makes every later completion call follow_transition (0002). The trigger is deferred, so that it sees all
-- dependencies of a job.
CREATE FUNCTION {schema}.settle_new_dependency() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.jobs SET needs_follow_up = true WHERE id = NEW.depends_on AND NOT needs_follow_up;
    PERFORM FROM {schema}.jobs WHERE id = NEW.depends_on FOR SHARE;
    PERFORM {schema}.queue_when_dependencies_are_complete(ARRAY[NEW.job_id]);
    IF EXISTS (
        SELECT FROM {schema}.jobs AS job, {schema}.jobs AS needed
         WHERE job.id = NEW.job_id AND job.status <> 'uploaded'
           AND needed.id = NEW.depends_on AND needed.status <> 'complete') THEN
        RAISE EXCEPTION 'job % is past the point where it could wait for job %', NEW.job_id, NEW.depends_on
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_waits_for_its_dependencies',
                  HINT = 'Insert a job that has to wait with the status uploaded.';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER settle_new_dependency AFTER INSERT OR UPDATE ON {schema}.job_dependencies
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.settle_new_dependency();

-- The lock admits one transaction at a time: otherwise two could each write one half of a cycle.
CREATE FUNCTION {schema}.refuse_cycle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('convertq dependencies ' || TG_TABLE_SCHEMA));
    IF EXISTS (
        WITH RECURSIVE needed (id) AS (
            SELECT NEW.depends_on
            UNION
            SELECT dependency.depends_on
              FROM {schema}.job_dependencies AS dependency JOIN needed ON needed.id = dependency.job_id)
        SELECT FROM needed WHERE id = NEW.job_id) THEN
        RAISE EXCEPTION 'job % cannot wait for job %: that would be a cycle', NEW.job_id, NEW.depends_on
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dependencies_have_no_cycle';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER refuse_cycle BEFORE INSERT OR UPDATE ON {schema}.job_dependencies
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_cycle();
