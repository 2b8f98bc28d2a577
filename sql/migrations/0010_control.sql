-- supports code from: 6
--
-- Control of the queue by hand and by time: pauses, the earliest time and the deadline of a job, and the log
-- of what happened to the queue as a whole.
--
-- Code of an earlier release works with these tables, but its claims know neither a paused gateway nor a
-- deadline. Jobs of a paused owner, and jobs whose time has not come, are not in the claim's index, so older
-- code does not claim them either.

-- This lock comes first, as in every transaction that writes jobs.
ALTER TABLE {schema}.jobs
    ADD COLUMN not_before timestamptz, -- no attempt begins earlier: guard_job copies it to retry_after
    ADD COLUMN deadline timestamptz,   -- no attempt begins later: expire_jobs
    ADD COLUMN paused boolean NOT NULL DEFAULT false; -- retry_after is infinity because its owner is paused


-- What happened to the queue, not to one job. It is append-only, as job_events is.
CREATE TABLE {schema}.queue_events (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_type text        NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    meta       jsonb       NOT NULL DEFAULT '{}',

    CONSTRAINT queue_event_type_is_known CHECK (event_type = ANY (
        '{breaker_opened, breaker_closed, paused, resumed, held, released, limit_changed, operator}'))
);

CREATE FUNCTION {schema}.keep_queue_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('convertq.cleanup', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'queue_events is append-only: % is not allowed', lower(TG_OP)
        USING ERRCODE = 'restrict_violation', HINT = 'Old events are removed by: convertq cleanup';
END $$;

CREATE TRIGGER keep_queue_events BEFORE UPDATE OR DELETE ON {schema}.queue_events
    FOR EACH ROW EXECUTE FUNCTION {schema}.keep_queue_events();
CREATE TRIGGER keep_all_queue_events BEFORE TRUNCATE ON {schema}.queue_events
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.keep_queue_events();


-- What is paused by hand. A job is paused if a row names its gateway or none, and its owner or none.
--
-- A row without an owner stops every claim of the gateway: the claim reads it. A row with an owner is read by
-- the claim too, so that it is in force at once. Besides, guard_job sets retry_after of that owner's jobs to
-- infinity when they are queued, and pause_jobs does so for those that were queued before, slice by slice:
-- then they are not in the claim's index, and other claims do not read them.
CREATE TABLE {schema}.pauses (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    gateway  text,                                -- null: all
    owner    text,                                -- null: all
    by       text        NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    swept_at timestamptz,                         -- pause_jobs has seen the whole index, from this time on

    CONSTRAINT one_pause_of_each_kind UNIQUE NULLS NOT DISTINCT (gateway, owner)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
