-- supports code from: 6
--
-- The state `cancelled`: a job that somebody has ended before it was complete or failed.
--
-- Older code can run beside it, but cannot show a job in this state: cancel the first job when every host has
-- the new code. The checks are added without reading the tables; 0009 validates them, and builds the indexes
-- that depend on the functions below. 0013 has what guard_job and the counters have to know of this state.

-- Every writer locks jobs first, and so does this file.
LOCK TABLE {schema}.jobs, {schema}.job_events IN ACCESS EXCLUSIVE MODE;

CREATE OR REPLACE FUNCTION {schema}.job_statuses() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['uploaded', 'queued', 'processing', 'complete', 'failed', 'cancelled'];
CREATE OR REPLACE FUNCTION {schema}.is_terminal(status text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN status IN ('complete', 'failed', 'cancelled');
-- A cancelled job that is started over becomes `uploaded` while it waits for another job.
CREATE OR REPLACE FUNCTION {schema}.job_transitions() RETURNS TABLE (from_status text, to_status text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    VALUES ('uploaded', 'queued'), ('uploaded', 'failed'), ('uploaded', 'cancelled'),
           ('queued', 'processing'), ('queued', 'failed'), ('queued', 'cancelled'),
           ('processing', 'complete'), ('processing', 'failed'), ('processing', 'queued'),
           ('processing', 'cancelled'),
           ('failed', 'queued'), ('complete', 'queued'), ('cancelled', 'queued'), ('cancelled', 'uploaded');
END;

ALTER TABLE {schema}.jobs
    ADD COLUMN cancelled_at timestamptz,  -- exactly while it is cancelled: guard_job sets and clears it
    DROP CONSTRAINT status_is_known,
    ADD CONSTRAINT status_is_known
        CHECK (status = ANY ('{uploaded, queued, processing, complete, failed, cancelled}')) NOT VALID;
ALTER TABLE {schema}.job_events
    DROP CONSTRAINT event_type_is_known,
    ADD CONSTRAINT event_type_is_known CHECK (event_type = ANY (
        '{created, queued, processing, retry, requeued, reclaimed, complete, failed, cancelled, downloaded,'
        ' expired}')) NOT VALID;


-- The notification of a cancelled job that was being converted: every supervisor listens on this channel, and
-- the payload names the holder of the lease. It is only a hint: the worker reads its rows before it ends
-- anything, so a notification that anybody else sends does no harm. Few transactions send one, so that the
-- lock of NOTIFY (0003) delays nobody.
CREATE FUNCTION {schema}.cancel_channel() RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT 'convertq_' || left(trim('"' FROM '{schema}'), 50) || '_cancel' $$;

CREATE FUNCTION {schema}.listen_for_cancels() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('LISTEN %I', {schema}.cancel_channel());
END $$;


-- follow_transition as in 0002. New: a worker is notified when its job is cancelled, and a cancelled job that
-- is started over may have to wait: its event is `retry` with meta.to.
CREATE OR REPLACE FUNCTION {schema}.follow_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    brought text;
    -- the state that an event of this type comes from when its meta has no `from`: see count_events
    usual text := CASE NEW.status WHEN 'queued' THEN 'uploaded' WHEN 'processing' THEN 'queued'
                                  WHEN 'uploaded' THEN '' ELSE 'processing' END;
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
        IF NEW.status = 'cancelled' THEN
            PERFORM pg_notify({schema}.cancel_channel(), OLD.leased_by);
        END IF;
    END IF;

    -- A transition and its event are written by one transaction. Where the writer has written none (another
    -- program), the trigger writes it, so there is never one without the other. Two transitions that follow
    -- each other end in different states, so the job's last event shows whether this transition has its
    -- own.
    brought := {schema}.last_own_event(NEW.id);
    IF brought IS NULL
       OR brought <> NEW.status
          AND NOT (NEW.status = 'queued' AND brought IN ('retry', 'requeued', 'reclaimed'))
          AND NOT (NEW.status = 'uploaded' AND brought = 'retry') THEN
        INSERT INTO {schema}.job_events (job_id, event_type, meta)
        VALUES (NEW.id, CASE NEW.status WHEN 'uploaded' THEN 'retry' ELSE NEW.status END,
                jsonb_strip_nulls(jsonb_build_object(
            'to', CASE NEW.status WHEN 'uploaded' THEN 'uploaded' END,
            'reason', CASE NEW.status WHEN 'uploaded' THEN 'manual' END,
            'by', 'trigger', 'worker', NEW.leased_by, 'attempt', nullif(NEW.attempt_count, 0),
            'from', nullif(OLD.status, usual), 'error_code', NEW.error_code,
            'error_message', NEW.error_message)));
    END IF;

    IF NEW.status = 'complete' AND NEW.needs_follow_up THEN
        PERFORM {schema}.release_slice(  -- 0004
            NEW.id, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff',
            waits => true);
    END IF;
    -- A job that is started over and waits for another one: the shared locks wait for a completion that is
    -- not committed yet, or make it wait for this transaction, as in settle_new_dependency (0004).
    IF NEW.status = 'uploaded' THEN
        PERFORM FROM {schema}.jobs
          WHERE id IN (SELECT depends_on FROM {schema}.job_dependencies WHERE job_id = NEW.id)
          ORDER BY id FOR SHARE;
        IF FOUND THEN
            PERFORM {schema}.queue_when_dependencies_are_complete(ARRAY[NEW.id]);
        END IF;
    END IF;
    RETURN NULL;
END $$;
