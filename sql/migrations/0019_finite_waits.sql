-- supports code from: 6
--
-- guard_job as in 0013. New: what keeps a job of a paused owner, or of one with too many running jobs, out of
-- the claim's index is a time that every client can read. The drivers of many languages cannot read infinity,
-- and an application that reads its jobs did not ask for the pause. A job that another program has parked
-- keeps its infinity.
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
    ELSIF NEW.retry_after IS NULL OR NEW.retry_after < '9999-01-01 00:00+00' THEN
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
                NEW.retry_after := '9999-01-01 00:00+00';
            ELSIF is_shared THEN
                NEW := {schema}.share_queue(NEW, OLD);
                IF NEW.over_cap THEN
                    NEW.retry_after := '9999-01-01 00:00+00';
                END IF;
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
