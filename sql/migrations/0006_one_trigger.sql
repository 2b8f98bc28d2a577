-- What follows a change of status, in one trigger instead of four, and without a plan made anew for each update:
-- PostgreSQL reads the condition of every trigger again for each statement, and each job is updated twice.

-- As before; but the look at dependencies is a branch of its own. As part of a longer condition it was planned and run for
-- every update of any job.
CREATE OR REPLACE FUNCTION {schema}.guard_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status <> OLD.status THEN
        IF (OLD.status, NEW.status) NOT IN (
               ('queued', 'processing'), ('processing', 'complete'),
               ('uploaded', 'queued'), ('uploaded', 'failed'), ('queued', 'failed'),
               ('processing', 'failed'), ('processing', 'queued'),
               ('failed', 'queued'), ('complete', 'queued')) THEN
            RAISE EXCEPTION 'job % cannot go from % to %', OLD.id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation',
                      CONSTRAINT = 'job_transition_is_allowed',
                      HINT = 'Allowed: uploaded to queued or failed, queued to processing or failed, '
                             'processing to complete, failed or queued, failed to queued, complete to queued.';
        END IF;
        IF OLD.status = 'uploaded' AND NEW.status = 'queued' THEN
            IF EXISTS (
                SELECT FROM {schema}.job_dependencies AS link JOIN {schema}.jobs AS needed ON needed.id = link.depends_on
                 WHERE link.job_id = NEW.id AND needed.status <> 'complete') THEN
                RAISE EXCEPTION 'job % waits for another job and cannot be queued before that one is complete', NEW.id
                    USING ERRCODE = 'check_violation', CONSTRAINT = 'job_waits_for_its_dependencies';
            END IF;
        END IF;
    END IF;
    IF NEW.status = 'queued' AND NEW.queued_at IS NULL THEN
        NEW.queued_at := now();
    END IF;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;


-- What follows an insert or a change of status, in this order: the end of the attempt, the event, the wake-up or the dependants.
CREATE FUNCTION {schema}.follow_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    brought boolean;
    dependants uuid[];
    -- where an event of this type comes from when its meta does not say: see count_events
    usual text := CASE NEW.status WHEN 'queued' THEN 'uploaded' WHEN 'processing' THEN 'queued' ELSE 'processing' END;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {schema}.job_events (job_id, event_type) VALUES (NEW.id, 'created');
    ELSIF OLD.status = 'processing' THEN
        -- Whatever ends an attempt (outcome, requeue, reclaim, another program) ends its progress, and ends a trial of the
        -- breaker without success: the breaker is open again from that moment. Few jobs have progress: looking is cheaper.
        PERFORM FROM {schema}.job_progress WHERE job_id = OLD.id;
        IF FOUND THEN
            DELETE FROM {schema}.job_progress WHERE job_id = OLD.id;
        END IF;
        IF NEW.status <> 'complete' THEN
            UPDATE {schema}.circuit_breaker
               SET state = 'open', probe_by = NULL, trial_job = NULL, probe_after = now() + cooldown
             WHERE state = 'half_open' AND trial_job = OLD.id;
        END IF;
    END IF;

    -- A transition and its event are written by one transaction; where the writer has brought none (another program, or an
    -- INSERT), it is written here, so there is never one without the other. Two transitions that follow each other end in
    -- different states: so the job's last event tells whether this one has its own.
    IF NEW.status <> 'uploaded' THEN
        SELECT xact_id = pg_current_xact_id()
               AND (event_type = NEW.status OR NEW.status = 'queued' AND event_type IN ('retry', 'requeued', 'reclaimed'))
          INTO brought
          FROM {schema}.job_events
         WHERE job_id = NEW.id AND event_type NOT IN ('created', 'downloaded', 'expired')
         ORDER BY id DESC LIMIT 1;
        IF brought IS NOT TRUE THEN
            INSERT INTO {schema}.job_events (job_id, event_type, meta)
            VALUES (NEW.id, NEW.status, jsonb_strip_nulls(jsonb_build_object(
                'by', CASE TG_OP WHEN 'UPDATE' THEN 'trigger' END,
                'worker', NEW.leased_by, 'attempt', nullif(NEW.attempt_count, 0),
                'from', nullif(CASE TG_OP WHEN 'INSERT' THEN 'uploaded' ELSE OLD.status END, usual),
                'error_code', NEW.error_code, 'error_message', NEW.error_message)));
        END IF;
    END IF;

    IF NEW.status = 'queued' THEN
        -- The payload is empty: PostgreSQL folds equal ones of a transaction into one, and a worker that finds more than it
        -- took wakes the next.
        PERFORM pg_notify('convertq_' || left(TG_TABLE_SCHEMA, 50), '');
    ELSIF TG_OP = 'UPDATE' AND NEW.status = 'complete' THEN
        dependants := ARRAY(SELECT job_id FROM {schema}.job_dependencies WHERE depends_on = NEW.id);
        IF cardinality(dependants) > 0 THEN
            PERFORM {schema}.queue_when_dependencies_are_complete(dependants);
        END IF;
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER record_insert ON {schema}.jobs;
DROP TRIGGER record_transition ON {schema}.jobs;
DROP TRIGGER wake_on_insert ON {schema}.jobs;
DROP TRIGGER wake_on_queued ON {schema}.jobs;
DROP TRIGGER end_attempt ON {schema}.jobs;
DROP TRIGGER release_dependants ON {schema}.jobs;
DROP FUNCTION {schema}.record_transition, {schema}.announce_job, {schema}.end_attempt, {schema}.release_dependants;

CREATE TRIGGER follow_insert AFTER INSERT ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}.follow_job();
CREATE TRIGGER follow_transition AFTER UPDATE ON {schema}.jobs
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION {schema}.follow_job();
