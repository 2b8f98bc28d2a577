-- supports code from: 6
--
-- What the triggers have to know of cancels (0008), pauses, times and the log of the queue
-- (0010), routes (0012), and the share of each owner (0014). These functions concern all of them, so they are
-- defined once, after all.

-- This lock comes first, as in every transaction that writes jobs.
ALTER TABLE {schema}.jobs
    ADD COLUMN over_cap boolean NOT NULL DEFAULT false; -- retry_after is infinity by the limit of its owner

-- How owners share the workers, as the supervisor that started last says. guard_job reads this row with each
-- job that becomes claimable, and the claim reads owner_max_running; everything else about it is in 0014.
CREATE TABLE {schema}.fair_share (
    only_row          boolean PRIMARY KEY DEFAULT true,
    takes_turns       boolean NOT NULL DEFAULT false, -- FAIR_SHARE
    owner_max_running integer NOT NULL DEFAULT 0,     -- OWNER_MAX_RUNNING; 0: no limit
    changed_by        xid8    NOT NULL DEFAULT pg_current_xact_id(), -- the transaction that wrote these two
    jobs_follow       boolean NOT NULL DEFAULT true,  -- false: queued jobs may have turns from before that

    CONSTRAINT there_is_one_share CHECK (only_row),
    CONSTRAINT a_cap_is_not_negative CHECK (owner_max_running >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

INSERT INTO {schema}.fair_share DEFAULT VALUES;


-- guard_job as in 0002. New:
--   * cancelled_at is set exactly while the job is cancelled, and a cancelled job that is started over is in
--     its next run, also where it has to wait first.
--   * What keeps a queued job out of the claim's index: the time before which it must not begin, and the
--     pause of its owner. A deadline that has passed ends with the run that it was given for.
--   * The route follows from the mapping, whatever the writer sends: when a job is inserted, when it becomes
--     claimable, and when its mapping or its route is written.
--   * Its turn, and whether it waits until fewer jobs of its owner are claimable (over_cap), follow from
--     fair_share. One statement reads that and the pauses.
CREATE OR REPLACE FUNCTION {schema}.guard_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_shared boolean;
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.own_transitions := 0;
        NEW.needs_follow_up := false;
        NEW.paused := false;
        NEW.over_cap := false;
        NEW.turn := 0;
        NEW.route := {schema}.route_of(NEW.mapping);
    ELSE
        NEW.own_transitions := OLD.own_transitions;
        NEW.needs_follow_up := OLD.needs_follow_up OR NEW.needs_follow_up;
        NEW.run := OLD.run + ({schema}.is_terminal(OLD.status) AND NOT {schema}.is_terminal(NEW.status))::int;
        IF NEW.run > OLD.run AND NEW.deadline <= now() THEN
            NEW.deadline := NULL;
        END IF;
        IF NEW.status = 'queued' AND (OLD.status <> 'queued' OR OLD.retry_after IS NOT NULL)
           OR NEW.route <> OLD.route OR NEW.mapping <> OLD.mapping THEN
            NEW.route := {schema}.route_of(NEW.mapping);
        END IF;
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
    NEW.cancelled_at := CASE WHEN NEW.status = 'cancelled' THEN coalesce(NEW.cancelled_at, now()) END;
    IF (NEW.paused OR NEW.over_cap) AND NEW.status <> 'queued' THEN
        NEW.paused := false;
        NEW.over_cap := false;
        NEW.retry_after := NULL;
    ELSIF NEW.retry_after IS DISTINCT FROM 'infinity' THEN
        NEW.paused := false;
        NEW.over_cap := false;
    END IF;
    IF NEW.status = 'queued' AND NEW.retry_after IS NULL THEN
        IF NEW.not_before > now() THEN
            NEW.retry_after := NEW.not_before;
        ELSE
            SELECT takes_turns OR owner_max_running > 0, EXISTS (
                       SELECT FROM {schema}.pauses
                        WHERE owner = NEW.owner_session_id AND (gateway IS NULL OR gateway = NEW.route))
              INTO is_shared, NEW.paused
              FROM {schema}.fair_share;
            IF NEW.paused THEN
                NEW.retry_after := 'infinity';
            ELSIF is_shared THEN
                NEW := {schema}.share_queue(NEW, OLD);
            ELSE
                NEW.turn := 0;
            END IF;
        END IF;
    END IF;
    -- A job may be parked (retry_after) or kept (expires_at) until infinity; all other times are in the past.
    IF NOT (isfinite(NEW.created_at) AND isfinite(NEW.queued_at) AND isfinite(NEW.started_at)
            AND isfinite(NEW.completed_at) AND isfinite(NEW.failed_at) AND isfinite(NEW.last_attempt_at)
            AND isfinite(NEW.lease_expires_at) AND isfinite(NEW.first_downloaded_at)
            AND isfinite(NEW.cancelled_at)) THEN
        RAISE EXCEPTION 'job % has an infinite time where only a finite one makes sense', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'what_has_happened_has_a_finite_time',
                  HINT = 'Only retry_after (parked) and expires_at (kept) may be infinity.';
    END IF;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;


-- Every opening and every closing of the breaker has its event, for every writer. An opening lasts through
-- all probes and trials.
CREATE FUNCTION {schema}.follow_breaker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.queue_events (event_type, meta)
    VALUES (CASE NEW.state WHEN 'closed' THEN 'breaker_closed' ELSE 'breaker_opened' END,
            jsonb_strip_nulls(jsonb_build_object(
                'gateway', NEW.gateway, 'by_hand', nullif(NEW.by_hand, false),
                'open_seconds', round(extract(epoch FROM now() - OLD.opened_at), 3))));
    RETURN NULL;
END $$;

CREATE TRIGGER follow_breaker AFTER UPDATE ON {schema}.circuit_breaker
    FOR EACH ROW WHEN ((OLD.state = 'closed') <> (NEW.state = 'closed'))
    EXECUTE FUNCTION {schema}.follow_breaker();
