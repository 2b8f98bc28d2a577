-- supports code from: 6
--
-- Estimates: when a job will probably be done. docs/architecture.md explains the model.
--
-- No statement of a job's own way reads or writes these tables. One supervisor at a time fills them, from the
-- events and from the claim's index, a bounded number of rows at a time. This file locks no table that jobs
-- are written to.

-- Files are measured in classes of size: the class is the power of two that is not below it.
CREATE FUNCTION {schema}.size_class(bytes bigint) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ceil(ln(greatest(bytes, 1)::double precision) / ln(2::double precision))::integer;

-- How long jobs took. Each value is a mean over so many jobs (`weight`), of which older ones count less and
-- less.
CREATE TABLE {schema}.service_times (
    gateway       text             NOT NULL,
    mapping       text             NOT NULL,
    size_class    integer          NOT NULL,
    weight        double precision NOT NULL, -- how many jobs the measured times count as
    work_seconds  double precision NOT NULL, -- time of a worker for one job, with all of its attempts
    log_seconds   double precision NOT NULL, -- logarithm of the duration of the attempt that succeeded,
    log_squares   double precision NOT NULL, -- and its square: an outlier has little weight in both
    retried       double precision NOT NULL, -- share of jobs that needed more than one attempt,
    retry_seconds double precision NOT NULL, -- and how much later they were done; 0 for all others

    PRIMARY KEY (gateway, mapping, size_class)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- Every 250th job of each route in the claim's order, as of the last measurement: a position behind the first
-- 1,000 jobs is counted from the nearest of them.
CREATE TABLE {schema}.queue_marks (
    route            text        NOT NULL,
    place            bigint      NOT NULL, -- its position in the route, from 1
    claim_priority   bigint      NOT NULL,
    claim_turn       bigint      NOT NULL,
    claim_created_at timestamptz NOT NULL,
    claim_id         uuid        NOT NULL,

    PRIMARY KEY (route, place)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- place_of_mark returns the place of the last mark that is not behind this key, 0 without one.
CREATE FUNCTION {schema}.place_of_mark(
    its_route text, its_priority bigint, its_turn bigint, its_created_at timestamptz, its_id uuid)
RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(max(place), 0) FROM {schema}.queue_marks
     WHERE route = its_route AND (claim_priority, claim_turn, claim_created_at, claim_id)
                                 <= (its_priority, its_turn, its_created_at, its_id)
$$;

-- A sample of new jobs with what was estimated for them, until they are done. It has no foreign key: a row
-- whose job is gone is removed with the next score.
CREATE TABLE {schema}.estimate_samples (
    job_id         uuid             PRIMARY KEY,
    run            integer          NOT NULL,
    estimated_at   timestamptz      NOT NULL,
    done_by        timestamptz      NOT NULL,
    median_seconds double precision NOT NULL, -- until done_at and
    late_seconds   double precision NOT NULL  -- until done_by, before the factors below are applied
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- What became of the last 1,000 of them that were done.
CREATE TABLE {schema}.estimate_scores (
    id           bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    covered      boolean          NOT NULL, -- done by done_by
    median_ratio double precision NOT NULL, -- the time that it took, divided by median_seconds
    late_ratio   double precision NOT NULL  -- and by late_seconds
) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE {schema}.estimate_state (
    only_row        boolean          PRIMARY KEY DEFAULT true,
    next_at         timestamptz      NOT NULL DEFAULT now(), -- no supervisor measures earlier
    seen_event      bigint           NOT NULL DEFAULT 0,     -- jobs up to this event are not sampled any more
    measured_at     timestamptz      NOT NULL DEFAULT '-infinity', -- service_times has what came before
    marks_due_at    timestamptz      NOT NULL DEFAULT '-infinity', -- the next measurement of queue_marks
    history_due_at  timestamptz      NOT NULL DEFAULT '-infinity', -- and of `interruptions`
    median_factor   double precision NOT NULL DEFAULT 1, -- by these the seconds until done_at and done_by are
    late_factor     double precision NOT NULL DEFAULT 1, -- multiplied: they follow from estimate_scores
    interruptions   jsonb            NOT NULL DEFAULT '{}', -- by gateway, of the last day: number, seconds

    CONSTRAINT there_is_one_estimate_state CHECK (only_row)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

INSERT INTO {schema}.estimate_state DEFAULT VALUES;
