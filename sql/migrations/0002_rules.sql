-- What no writer, in any language, can get around: transitions, events, wake-ups, dependencies.

-- updated_at moves at every change; a status moves only along the arrows of sql/README.md.
CREATE FUNCTION {schema}.guard_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status <> OLD.status
       AND (OLD.status, NEW.status) NOT IN (
           ('uploaded', 'queued'), ('uploaded', 'failed'),
           ('queued', 'processing'), ('queued', 'failed'),
           ('processing', 'complete'), ('processing', 'failed'), ('processing', 'queued'),
           ('failed', 'queued'), ('complete', 'queued')) THEN
        RAISE EXCEPTION 'job % cannot go from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation',
                  CONSTRAINT = 'job_transition_is_allowed',
                  HINT = 'Allowed: uploaded to queued or failed, queued to processing or failed, '
                         'processing to complete, failed or queued, failed to queued, complete to queued.';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status = 'uploaded' AND NEW.status = 'queued' AND EXISTS (
        SELECT FROM {schema}.job_dependencies AS link JOIN {schema}.jobs AS needed ON needed.id = link.depends_on
         WHERE link.job_id = NEW.id AND needed.status <> 'complete') THEN
        RAISE EXCEPTION 'job % waits for another job and cannot be queued before that one is complete', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_waits_for_its_dependencies';
    END IF;
    IF NEW.status = 'queued' AND NEW.queued_at IS NULL THEN
        NEW.queued_at := now();
    END IF;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;

CREATE TRIGGER guard_job BEFORE INSERT OR UPDATE ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_job();


-- A transition and its event are written by one transaction; where the writer has brought none (another program, or an
-- INSERT), it is written here, so there is never one without the other. Two transitions that follow each other end in
-- different states: so the job's last event tells whether this one has its own.
CREATE FUNCTION {schema}.record_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fitting text[] := CASE NEW.status
                          WHEN 'queued' THEN ARRAY['queued', 'retry', 'requeued', 'reclaimed']
                          ELSE ARRAY[NEW.status] END;
    -- where an event of this type comes from when its meta does not say: see count_events
    usual text := CASE NEW.status WHEN 'queued' THEN 'uploaded' WHEN 'processing' THEN 'queued' ELSE 'processing' END;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {schema}.job_events (job_id, event_type) VALUES (NEW.id, 'created');
    END IF;
    IF NEW.status <> 'uploaded' AND NOT EXISTS (
        SELECT FROM (SELECT event_type, xact_id FROM {schema}.job_events
                      WHERE job_id = NEW.id AND event_type NOT IN ('created', 'downloaded', 'expired')
                      ORDER BY id DESC LIMIT 1) AS last
         WHERE last.event_type = ANY (fitting) AND last.xact_id = pg_current_xact_id()) THEN
        INSERT INTO {schema}.job_events (job_id, event_type, meta)
        VALUES (NEW.id, NEW.status, jsonb_strip_nulls(jsonb_build_object(
            'by', CASE TG_OP WHEN 'UPDATE' THEN 'trigger' END,
            'worker', NEW.leased_by, 'attempt', nullif(NEW.attempt_count, 0),
            'from', nullif(CASE TG_OP WHEN 'INSERT' THEN 'uploaded' ELSE OLD.status END, usual),
            'error_code', NEW.error_code, 'error_message', NEW.error_message)));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER record_insert AFTER INSERT ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}.record_transition();
CREATE TRIGGER record_transition AFTER UPDATE ON {schema}.jobs
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION {schema}.record_transition();


-- A program that writes its event after the change, in the same transaction, has the last word: what the trigger above
-- wrote in between is taken back before anybody sees it.
CREATE FUNCTION {schema}.yield_to_brought_event() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE CONSTRAINT TRIGGER yield_to_brought_event AFTER INSERT ON {schema}.job_events
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.meta ->> 'by' = 'trigger') EXECUTE FUNCTION {schema}.yield_to_brought_event();


-- One wake-up for a row that becomes claimable. The payload is empty: PostgreSQL folds equal ones of a transaction
-- into one, and a worker that finds more than it took wakes the next.
CREATE FUNCTION {schema}.announce_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('convertq_' || left(TG_TABLE_SCHEMA, 50), '');
    RETURN NULL;
END $$;

CREATE TRIGGER wake_on_insert AFTER INSERT ON {schema}.jobs
    FOR EACH ROW WHEN (NEW.status = 'queued') EXECUTE FUNCTION {schema}.announce_job();
CREATE TRIGGER wake_on_queued AFTER UPDATE ON {schema}.jobs
    FOR EACH ROW WHEN (NEW.status = 'queued' AND OLD.status <> 'queued')
    EXECUTE FUNCTION {schema}.announce_job();


-- Whatever ends an attempt (outcome, requeue, reclaim, another program) ends its progress, and ends a trial of the
-- breaker without success: the breaker is open again from that moment.
CREATE FUNCTION {schema}.end_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.job_progress WHERE job_id = OLD.id;
    IF NEW.status <> 'complete' THEN
        UPDATE {schema}.circuit_breaker
           SET state = 'open', probe_by = NULL, trial_job = NULL, probe_after = now() + cooldown
         WHERE state = 'half_open' AND trial_job = OLD.id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER end_attempt AFTER UPDATE ON {schema}.jobs
    FOR EACH ROW WHEN (OLD.status = 'processing' AND NEW.status <> 'processing')
    EXECUTE FUNCTION {schema}.end_attempt();


-- Dependencies. Two that complete at the same moment do not see each other; so the dependant is locked first, and
-- looked at afterwards with a fresh snapshot (a volatile function takes one for each of its statements).
CREATE FUNCTION {schema}.queue_when_dependencies_are_complete(dependants uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.jobs WHERE id = ANY (dependants) AND status = 'uploaded' ORDER BY id FOR UPDATE;
    UPDATE {schema}.jobs AS dependant SET status = 'queued', queued_at = now()
     WHERE id = ANY (dependants) AND status = 'uploaded'
       AND NOT EXISTS (
           SELECT FROM {schema}.job_dependencies AS link JOIN {schema}.jobs AS needed ON needed.id = link.depends_on
            WHERE link.job_id = dependant.id AND needed.status <> 'complete');
END $$;

CREATE FUNCTION {schema}.release_dependants() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    dependants uuid[] := ARRAY(SELECT job_id FROM {schema}.job_dependencies WHERE depends_on = NEW.id);
BEGIN
    IF cardinality(dependants) > 0 THEN
        PERFORM {schema}.queue_when_dependencies_are_complete(dependants);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER release_dependants AFTER UPDATE ON {schema}.jobs
    FOR EACH ROW WHEN (NEW.status = 'complete' AND OLD.status <> 'complete')
    EXECUTE FUNCTION {schema}.release_dependants();

-- A link to a job that is complete already must not leave the dependant waiting: the shared lock makes a completion
-- that is under way visible, or makes it wait for this transaction. Deferred, so that all links are there.
CREATE FUNCTION {schema}.settle_new_dependency() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
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

CREATE CONSTRAINT TRIGGER settle_new_dependency AFTER INSERT ON {schema}.job_dependencies
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.settle_new_dependency();

-- One at a time, or two halves of a cycle could be written side by side.
CREATE FUNCTION {schema}.refuse_cycle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('convertq dependencies ' || TG_TABLE_SCHEMA));
    IF EXISTS (
        WITH RECURSIVE needed (id) AS (
            SELECT NEW.depends_on
            UNION
            SELECT link.depends_on FROM {schema}.job_dependencies AS link JOIN needed ON needed.id = link.job_id)
        SELECT FROM needed WHERE id = NEW.job_id) THEN
        RAISE EXCEPTION 'job % cannot wait for job %: that would be a cycle', NEW.job_id, NEW.depends_on
            USING ERRCODE = 'check_violation', CONSTRAINT = 'dependencies_have_no_cycle';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER refuse_cycle BEFORE INSERT OR UPDATE ON {schema}.job_dependencies
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_cycle();


-- Events are append-only. Retention (delete_old_events) says so in its own transaction.
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
