-- Transitions and their events: the rules that hold for every writer in every language.
--
-- Which statements the triggers on jobs leave alone. `own_transitions` counts the transitions of a job that
-- were made by the statements with which a worker claims and completes. Such a statement adds 1, and does
-- itself what the triggers do for others: it makes an allowed transition of a row that it has locked, sets
-- updated_at, and writes the event. The triggers are not called for an update that increases
-- own_transitions. What protects this:
--   * The right to write the column. roles.sql gives it to the role of the worker alone; a program with the
--     role of the web application, or with rights on other columns, gets "permission denied". The owner of
--     the tables has the right too, and with it the right to disable triggers.
--   * The value must increase. A program that writes a whole row back as it has read it, with the same
--     value or an older one, does not pass by the triggers: they are called, and guard_job keeps the value.
--   * CHECK constraints hold for every statement.
-- A setting of the session would protect nothing, because every program may change it.
--
-- `needs_follow_up` is true if a completion has to check for progress and for dependants. The trigger on
-- job_dependencies and report_progress set it, and guard_job lets nobody clear it. It is a column of the
-- row, because a statement that has waited for the lock of a row sees that row as it is now, but all other
-- tables as they were when the statement began.

-- The allowed transitions in words, for the message of guard_job.
CREATE FUNCTION {schema}.allowed_transitions() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'Allowed: ' || string_agg(from_status || ' to ' || targets, ', ' ORDER BY position) || '.'
      FROM (SELECT from_status, min(position) AS position,
                   regexp_replace(
                       string_agg(to_status, ', ' ORDER BY position), ', (\w+)$', ' or \1') AS targets
              FROM {schema}.job_transitions() WITH ORDINALITY AS allowed (from_status, to_status, position)
             GROUP BY from_status) AS by_origin
$$;

-- guard_job: updated_at changes with every update, and a status changes only as job_transitions() allows. A
-- job that is started over is in its next run, whatever value the writer sends: a result of an earlier run
-- is never used for this one. The check of dependencies is a branch of its own: as part of a longer
-- condition PostgreSQL would plan and run it for every update of every job. Times are checked here and not
-- by a CHECK, which PostgreSQL would parse again for each statement (6 us).
CREATE FUNCTION {schema}.guard_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.own_transitions := 0;
        NEW.needs_follow_up := false;
    ELSE
        NEW.own_transitions := OLD.own_transitions;
        NEW.needs_follow_up := OLD.needs_follow_up OR NEW.needs_follow_up;
        NEW.run := OLD.run + ({schema}.is_terminal(OLD.status) AND NEW.status = 'queued')::int;
        IF NEW.status <> OLD.status THEN
            IF NOT EXISTS (
                SELECT FROM {schema}.job_transitions()
                 WHERE from_status = OLD.status AND to_status = NEW.status) THEN
                RAISE EXCEPTION 'job % cannot go from % to %', OLD.id, OLD.status, NEW.status
                    USING ERRCODE = 'check_violation',
                          CONSTRAINT = 'job_transition_is_allowed',
                          HINT = {schema}.allowed_transitions();
            END IF;
            IF OLD.status <> 'processing' AND NEW.status = 'queued' THEN
                IF EXISTS (
                    SELECT FROM {schema}.job_dependencies AS dependency
                      JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
                     WHERE dependency.job_id = NEW.id AND needed.status <> 'complete') THEN
                    RAISE EXCEPTION
                        'job % waits for another job and cannot be queued before that one is complete', NEW.id
                        USING ERRCODE = 'check_violation', CONSTRAINT = 'job_waits_for_its_dependencies';
                END IF;
            END IF;
        END IF;
    END IF;
    IF NEW.status = 'queued' AND NEW.queued_at IS NULL THEN
        NEW.queued_at := now();
    END IF;
    IF NEW.route <> 'default' THEN
        RAISE EXCEPTION 'job % is for the route %, and no worker claims jobs of that route', NEW.id, NEW.route
            USING ERRCODE = 'check_violation', CONSTRAINT = 'route_is_known',
                  HINT = 'The only route is: default';
    END IF;
    -- A job may be parked (retry_after) or kept (expires_at) until infinity; all other times are in the past.
    IF NOT (isfinite(NEW.created_at) AND isfinite(NEW.queued_at) AND isfinite(NEW.started_at)
            AND isfinite(NEW.completed_at) AND isfinite(NEW.failed_at) AND isfinite(NEW.last_attempt_at)
            AND isfinite(NEW.lease_expires_at) AND isfinite(NEW.first_downloaded_at)) THEN
        RAISE EXCEPTION 'job % has an infinite time where only a finite one makes sense', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'what_has_happened_has_a_finite_time',
                  HINT = 'Only retry_after (parked) and expires_at (kept) may be infinity.';
    END IF;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;

CREATE TRIGGER guard_insert BEFORE INSERT ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_job();
CREATE TRIGGER guard_update BEFORE UPDATE ON {schema}.jobs
    FOR EACH ROW WHEN (NEW.own_transitions <= OLD.own_transitions) EXECUTE FUNCTION {schema}.guard_job();


-- last_own_event returns the type of the job's last event if this transaction has written it. It reads only
-- the newest partitions: no event of a running transaction is aggregated, so its id is above floor_id (0005).
-- The plan is generic, because PostgreSQL would otherwise plan the statement again for each call; it skips
-- partitions when it starts. An aggregate and no sequential scan: in a table without statistics the planner
-- would read the index of ids backwards, or all of the table.
CREATE FUNCTION {schema}.last_own_event(its_job uuid) RETURNS text LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    floor CONSTANT bigint := (SELECT floor_id FROM {schema}.counters_position);
BEGIN
    RETURN (SELECT (array_agg(CASE WHEN xact_id = pg_current_xact_id() THEN event_type END
                              ORDER BY id DESC))[1]
              FROM {schema}.job_events
             WHERE job_id = its_job AND id > floor
               AND event_type NOT IN ('created', 'downloaded', 'expired'));
END $$;


-- follow_insert writes the events of a new job, in one statement: `created`, and the event of its state
-- unless the statement that inserted the job also inserted that event. It need not look for one if the
-- statement says that it brings none for this job (submit_job does). meta.from is left out where count_events
-- (0005) assumes it.
CREATE FUNCTION {schema}.follow_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT NEW.id, 'created', '{}'::jsonb
    UNION ALL
    SELECT NEW.id, NEW.status, jsonb_strip_nulls(jsonb_build_object(
               'worker', NEW.leased_by, 'attempt', nullif(NEW.attempt_count, 0),
               'from', CASE WHEN NEW.status <> 'queued' THEN 'uploaded' END,
               'error_code', NEW.error_code, 'error_message', NEW.error_message))
     WHERE NEW.status <> 'uploaded'
       AND (current_setting('convertq.brings_no_event', true) = NEW.id::text
            OR {schema}.last_own_event(NEW.id) IS DISTINCT FROM NEW.status);
    RETURN NULL;
END $$;

CREATE TRIGGER follow_insert AFTER INSERT ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}.follow_insert();


-- follow_transition does what has to follow a change of status, in this order: the end of the attempt, the
-- event (and with it the wake-up), the release of dependants. It is one trigger, because PostgreSQL
-- evaluates the condition of every trigger again for each statement.
CREATE FUNCTION {schema}.follow_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    brought text;
    -- the state that an event of this type comes from when its meta has no `from`: see count_events
    usual text := CASE NEW.status WHEN 'queued' THEN 'uploaded' WHEN 'processing' THEN 'queued'
                                  ELSE 'processing' END;
BEGIN
    -- Every end of an attempt (outcome, requeue, reclaim, another program) ends its progress. Any end but a
    -- success ends a trial of the breaker, which is open again from that time.
    IF OLD.status = 'processing' THEN
        IF NEW.needs_follow_up THEN
            DELETE FROM {schema}.job_progress WHERE job_id = OLD.id;
        END IF;
        IF NEW.status <> 'complete' THEN
            UPDATE {schema}.circuit_breaker
               SET state = 'open', probe_by = NULL, trial_job = NULL, probe_after = now() + cooldown
             WHERE state = 'half_open' AND trial_job = OLD.id;
        END IF;
    END IF;

    -- A transition and its event are written by one transaction. Where the writer has written none (another
    -- program), the trigger writes it, so there is never one without the other. Two transitions that follow
    -- each other end in different states, so the job's last event shows whether this transition has its
    -- own.
    brought := {schema}.last_own_event(NEW.id);
    IF brought IS NULL
       OR brought <> NEW.status
          AND NOT (NEW.status = 'queued' AND brought IN ('retry', 'requeued', 'reclaimed')) THEN
        INSERT INTO {schema}.job_events (job_id, event_type, meta)
        VALUES (NEW.id, NEW.status, jsonb_strip_nulls(jsonb_build_object(
            'by', 'trigger', 'worker', NEW.leased_by, 'attempt', nullif(NEW.attempt_count, 0),
            'from', nullif(OLD.status, usual), 'error_code', NEW.error_code,
            'error_message', NEW.error_message)));
    END IF;

    IF NEW.status = 'complete' AND NEW.needs_follow_up THEN
        PERFORM {schema}.release_slice(  -- 0004
            NEW.id, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff',
            waits => true);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER follow_transition AFTER UPDATE ON {schema}.jobs
    FOR EACH ROW WHEN (
        OLD.status <> NEW.status AND (NEW.own_transitions <= OLD.own_transitions OR NEW.needs_follow_up))
    EXECUTE FUNCTION {schema}.follow_transition();


-- A program may write its event after its change, in the same transaction: then the event that
-- follow_transition wrote in between is removed before anyone sees it. This trigger has its owner's rights,
-- because a program that may insert events need not have the right to delete them. It can only delete the
-- row that it was fired for, and nobody else may use it for a trigger on a table of their own.
CREATE FUNCTION {schema}.yield_to_brought_event() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    next text := (SELECT event_type FROM {schema}.job_events
                   WHERE job_id = NEW.job_id AND id > NEW.id AND xact_id = NEW.xact_id
                     AND event_type NOT IN ('created', 'downloaded', 'expired')
                   ORDER BY id LIMIT 1);
BEGIN
    IF next = NEW.event_type OR NEW.event_type = 'queued' AND next IN ('retry', 'requeued', 'reclaimed') THEN
        PERFORM set_config('convertq.cleanup', 'on', true);
        DELETE FROM {schema}.job_events WHERE id = NEW.id;
        PERFORM set_config('convertq.cleanup', '', true);
    END IF;
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION {schema}.yield_to_brought_event() FROM PUBLIC;

CREATE CONSTRAINT TRIGGER yield_to_brought_event AFTER INSERT ON {schema}.job_events
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.meta ->> 'by' = 'trigger') EXECUTE FUNCTION {schema}.yield_to_brought_event();


-- Events are append-only. Retention (allow_cleanup) permits DELETE in its own transaction; the right to
-- delete belongs to the worker's role alone. The trigger on rows is one of every partition too; that on
-- TRUNCATE has to be created for each (0006).
CREATE FUNCTION {schema}.keep_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('convertq.cleanup', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'job_events is append-only: % is not allowed', lower(TG_OP)
        USING ERRCODE = 'restrict_violation', HINT = 'Old events are removed by: convertq cleanup';
END $$;

CREATE TRIGGER keep_events BEFORE UPDATE OR DELETE ON {schema}.job_events
    FOR EACH ROW EXECUTE FUNCTION {schema}.keep_events();
CREATE TRIGGER keep_all_events BEFORE TRUNCATE ON {schema}.job_events
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.keep_events();
CREATE TRIGGER keep_all_events BEFORE TRUNCATE ON {schema}.job_events_default
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.keep_events();
