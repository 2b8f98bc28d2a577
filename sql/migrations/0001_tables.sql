-- The tables, their invariants, and the indexes of the hot path.
--
-- Rules for the definitions below:
--   * Lease, heartbeat and progress columns are in no index, so that extending a lease is a HOT update.
--   * An index on the hot path is partial: it contains only the rows that the hot path can need.
--   * fillfactor leaves room on the page for the next version of a row that is about to change.
--   * PostgreSQL parses each CHECK and each condition of a trigger again for every statement, so they are
--     short: a list of words is one array constant.

-- The states of a job, and which may follow which. A new state is added here, in status_is_known below, and
-- in queue/status.py; tests compare the three. Statements and indexes that mean "finished" or "unfinished"
-- call these functions. PostgreSQL replaces the call by its body when it plans a statement or reads the
-- predicate of an index, so both match each other, and literal lists too. Each function lists its states
-- instead of negating the other one: an index on status can serve a list. Statements that mean one state
-- name it.
CREATE FUNCTION {schema}.job_statuses() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['uploaded', 'queued', 'processing', 'complete', 'failed'];
CREATE FUNCTION {schema}.is_active(status text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN status IN ('uploaded', 'queued', 'processing');
CREATE FUNCTION {schema}.is_terminal(status text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN status IN ('complete', 'failed');
CREATE FUNCTION {schema}.job_transitions() RETURNS TABLE (from_status text, to_status text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    VALUES ('uploaded', 'queued'), ('uploaded', 'failed'),
           ('queued', 'processing'), ('queued', 'failed'),
           ('processing', 'complete'), ('processing', 'failed'), ('processing', 'queued'),
           ('failed', 'queued'), ('complete', 'queued');
END;


CREATE TABLE {schema}.jobs (
    id                  uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    owner_session_id    text,
    user_id             uuid,
    original_filename   text,
    content_type        text        NOT NULL DEFAULT 'application/pdf',
    bytes               bigint      NOT NULL,
    sha256              char(64)    NOT NULL,
    mapping             text        NOT NULL DEFAULT 'pt_simon_invoice_v1',
    pretty              boolean     NOT NULL DEFAULT true,
    route               text        NOT NULL DEFAULT 'default', -- the gateway: one so far
    priority            integer     NOT NULL DEFAULT 0,
    turn                bigint      NOT NULL DEFAULT 0, -- within a priority: all have the same so far
    status              text        NOT NULL DEFAULT 'uploaded',
    upload_path         text,
    result_path         text,
    error_code          text,
    error_message       text,
    attempt_count       integer     NOT NULL DEFAULT 0,
    run                 integer     NOT NULL DEFAULT 1, -- how often it was started: see guard_job
    last_attempt_at     timestamptz,
    retry_after         timestamptz,
    dead_letter         boolean     NOT NULL DEFAULT false,
    leased_by           text,
    lease_expires_at    timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    queued_at           timestamptz,
    started_at          timestamptz,
    completed_at        timestamptz,
    failed_at           timestamptz,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    expires_at          timestamptz,
    download_count      integer     NOT NULL DEFAULT 0,
    first_downloaded_at timestamptz,
    duplicate_of        uuid        REFERENCES {schema}.jobs (id) ON DELETE SET NULL,
    own_transitions     integer     NOT NULL DEFAULT 0,     -- by statements that need no trigger: see 0002
    needs_follow_up     boolean     NOT NULL DEFAULT false, -- it has or had progress or dependants: see 0002

    CONSTRAINT one_job_per_owner_and_content UNIQUE (owner_session_id, sha256, mapping, bytes),
    CONSTRAINT file_is_not_empty CHECK (bytes > 0),
    CONSTRAINT status_is_known  -- not a call of job_statuses(), which each statement would inline again
        CHECK (status = ANY ('{uploaded, queued, processing, complete, failed}')),
    CONSTRAINT lease_held_exactly_while_processing
        CHECK ((leased_by IS NOT NULL) = (status = 'processing')
               AND (leased_by IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT error_code_exactly_when_failed
        CHECK ((error_code IS NOT NULL) = (status = 'failed')),
    CONSTRAINT result_path_only_when_complete
        CHECK (result_path IS NULL OR status = 'complete'),
    CONSTRAINT completed_at_when_complete
        CHECK (status <> 'complete' OR completed_at IS NOT NULL),
    CONSTRAINT dead_letter_only_when_failed
        CHECK (NOT dead_letter OR status = 'failed'),
    CONSTRAINT attempts_are_not_negative CHECK (attempt_count >= 0)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1
);

-- Columns that convertq itself does not use.
COMMENT ON COLUMN {schema}.jobs.user_id IS
    'For an application that has accounts. convertq neither reads nor writes it: owner_session_id says who '
    'may see a job.';
COMMENT ON COLUMN {schema}.jobs.content_type IS
    'The type of the source. Every source is a PDF today; convertq never writes another type.';
COMMENT ON COLUMN {schema}.jobs.duplicate_of IS
    'For an application that inserts a job per upload and names the job with the same content. convertq '
    'returns that job to the submitter instead of inserting a second one.';

-- Why each index is there. A job pays for an entry in each of them whenever its status changes, because no
-- change of status is a HOT update.
--
-- The claim reads this index in order (claim_order.sql). Jobs that wait for a retry are not in it, so a
-- claim never scans rows that it may not take; promote_due_jobs adds them when they are due. The priority
-- is negated so that the position where a claim starts is one row comparison.
CREATE INDEX jobs_claimable ON {schema}.jobs (route, (-priority::bigint), turn, created_at, id)
    WHERE status = 'queued' AND retry_after IS NULL;
-- promote_due_jobs, and the claim's check whether a retry is due. Only retries are in it.
CREATE INDEX jobs_waiting_for_retry ON {schema}.jobs (retry_after)
    WHERE status = 'queued' AND retry_after IS NOT NULL;
-- The pages of an owner's jobs, newest first.
CREATE INDEX jobs_by_owner ON {schema}.jobs (owner_session_id, created_at DESC, id);
-- The limit of active jobs per owner, which is checked with every upload.
CREATE INDEX jobs_by_owner_and_status ON {schema}.jobs (owner_session_id, status);
-- `list` and the admin page by status; reclaiming and "what runs now" (processing); retention of jobs by age.
CREATE INDEX jobs_by_status ON {schema}.jobs (status, created_at DESC);
-- DELETE of a job reads the jobs that name it as their original. Only duplicates are in it.
CREATE INDEX jobs_by_original ON {schema}.jobs (duplicate_of) WHERE duplicate_of IS NOT NULL;
-- `list` and `retry --failed` by code. Only failed jobs are in it.
CREATE INDEX jobs_failed_by_code ON {schema}.jobs (error_code, created_at DESC) WHERE status = 'failed';
-- The age of the queue. A manual retry starts that time again, so created_at would be wrong.
CREATE INDEX jobs_queued_since ON {schema}.jobs (queued_at) WHERE status = 'queued';
-- Cleanup of source and result files. Only finished jobs that have a file to remove are in them: a job
-- enters each once, when it ends. greatest() ignores nulls: a job whose writer did not set failed_at is
-- kept from the latest time that is known.
CREATE INDEX jobs_with_a_source_to_remove ON {schema}.jobs (greatest(completed_at, failed_at, created_at), id)
    WHERE upload_path IS NOT NULL AND {schema}.is_terminal(status);
CREATE INDEX jobs_with_a_result_to_remove ON {schema}.jobs (expires_at, id)
    WHERE result_path IS NOT NULL AND status = 'complete';


-- The history is partitioned by ranges of id, so that retention drops a table instead of deleting its rows;
-- 0006 creates the partitions. The ids come from a sequence, because a partitioned table can have an identity
-- column only from PostgreSQL 17 on. The sequence has no cache: a session must not keep ids for later (0005).
CREATE SEQUENCE {schema}.job_events_id_seq;

CREATE TABLE {schema}.job_events (
    -- The transaction that wrote it. It is the first column, because PostgreSQL evaluates defaults in the
    -- order of the columns: a transaction has its id before it draws that of an event. 0005 relies on this.
    xact_id    xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id         bigint      PRIMARY KEY DEFAULT nextval('{schema}.job_events_id_seq'),
    job_id     uuid        NOT NULL REFERENCES {schema}.jobs (id),
    event_type text        NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    meta       jsonb       NOT NULL DEFAULT '{}',

    CONSTRAINT event_type_is_known CHECK (event_type = ANY (
        '{created, queued, processing, retry, requeued, reclaimed, complete, failed, downloaded, expired}'))
) PARTITION BY RANGE (id);

ALTER SEQUENCE {schema}.job_events_id_seq OWNED BY {schema}.job_events.id;

-- Events for whose id there is no partition: a missing one must never stop a job.
CREATE TABLE {schema}.job_events_default PARTITION OF {schema}.job_events DEFAULT;

-- Why each index is there. Every event pays for an entry in the first, the second and the fourth.
-- The timeline of one job, the triggers' search for its last event, and the foreign key.
CREATE INDEX job_events_by_job ON {schema}.job_events (job_id, id);
-- The breaker's window: the last gateway calls of all jobs, newest first.
CREATE INDEX job_events_gateway_calls ON {schema}.job_events (id) WHERE meta ? 'gateway_ok';
-- The order in which events are added to the counters (0005).
CREATE INDEX job_events_to_aggregate ON {schema}.job_events (xact_id, id);
-- Throughput, success rate and errors of the last hours.
CREATE INDEX job_events_outcomes ON {schema}.job_events (event_type, at)
    WHERE event_type IN ('complete', 'failed');
-- The admin page's charts by minute. Only jobs that are tried again are in it.
CREATE INDEX job_events_again ON {schema}.job_events (event_type, at)
    WHERE event_type = 'retry' OR (event_type = 'queued' AND meta ? 'reason');


-- Up to where events are aggregated into the counters (0005). Retention may delete an event only when it is.
CREATE TABLE {schema}.counters_position (
    only_row    boolean PRIMARY KEY DEFAULT true,
    xact_id     xid8    NOT NULL,           -- aggregated up to this transaction,
    event_id    bigint  NOT NULL,           -- and in it up to this event
    restored_to bigint  NOT NULL DEFAULT 0, -- up to this event, by any xact_id: see recount_jobs
    floor_id    bigint  NOT NULL DEFAULT 0, -- every event that is not aggregated has a greater id: see 0005
    mark_xact   xid8,                       -- once the position reaches this transaction,
    mark_id     bigint,                     -- this id becomes floor_id

    CONSTRAINT there_is_one_position CHECK (only_row)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

INSERT INTO {schema}.counters_position (xact_id, event_id) VALUES ('0', 0);


CREATE TABLE {schema}.job_progress (
    job_id      uuid        PRIMARY KEY REFERENCES {schema}.jobs (id),
    step        text        NOT NULL,
    percent     integer     NOT NULL DEFAULT 0,
    bytes_done  bigint      NOT NULL DEFAULT 0,
    bytes_total bigint,
    message     text,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),

    CONSTRAINT step_is_known CHECK (step IN ('reading', 'converting', 'writing')),
    CONSTRAINT percent_is_a_percentage CHECK (percent BETWEEN 0 AND 100)
) WITH (fillfactor = 50);


CREATE TABLE {schema}.job_dependencies (
    job_id     uuid NOT NULL REFERENCES {schema}.jobs (id),
    depends_on uuid NOT NULL REFERENCES {schema}.jobs (id),

    PRIMARY KEY (job_id, depends_on),
    CONSTRAINT job_does_not_wait_for_itself CHECK (job_id <> depends_on)
);
CREATE INDEX job_dependencies_by_dependency ON {schema}.job_dependencies (depends_on, job_id);

-- Dependants that the transaction which completed `depends_on` has left for workers to release, as a range of
-- ids: the rest of very many, or a single one that was locked. It has no foreign key, because a row of a job
-- that was deleted does no harm: it finds no dependant.
CREATE TABLE {schema}.dependants_to_release (
    depends_on uuid NOT NULL,
    first_job  uuid NOT NULL,
    last_job   uuid NOT NULL,

    PRIMARY KEY (depends_on, first_job)
) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);


-- jobs.leased_by names a server without a foreign key: old jobs must not keep a server's row from being
-- removed.
CREATE TABLE {schema}.servers (
    id                text        PRIMARY KEY,
    hostname          text        NOT NULL,
    pid               integer     NOT NULL,
    version           text        NOT NULL,
    environment       text        NOT NULL,
    concurrency       integer     NOT NULL,
    status            text        NOT NULL DEFAULT 'active',
    started_at        timestamptz NOT NULL DEFAULT now(),
    last_heartbeat_at timestamptz NOT NULL DEFAULT now(),
    heard_since       timestamptz NOT NULL DEFAULT now(), -- without a gap: see mark_servers_dead
    stopped_at        timestamptz,

    CONSTRAINT server_status_is_known CHECK (status IN ('active', 'draining', 'stopped', 'dead')),
    CONSTRAINT a_server_has_finite_times
        CHECK (isfinite(started_at) AND isfinite(last_heartbeat_at) AND isfinite(stopped_at))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);


CREATE TABLE {schema}.circuit_breaker (
    only_row     boolean          PRIMARY KEY DEFAULT true,
    state        text             NOT NULL DEFAULT 'closed',
    by_hand      boolean          NOT NULL DEFAULT false,  -- opened by an operator: no probes
    cooldown     interval         NOT NULL DEFAULT '30 s', -- the setting of the process that opened it
    opened_at    timestamptz,                              -- it stays the same through all probes
    probe_after  timestamptz,                              -- the next probe, or the end of the current one
    probe_by     text,                                     -- the worker that probes and runs the trial
    trial_job    uuid,                                     -- the job that half-open allows
    window_after bigint           NOT NULL DEFAULT 0,      -- calls up to this event id are not counted
    open_seconds double precision NOT NULL DEFAULT 0,      -- of all openings that have ended

    CONSTRAINT there_is_one_breaker CHECK (only_row),
    CONSTRAINT breaker_state_is_known CHECK (state IN ('closed', 'open', 'half_open')),
    CONSTRAINT opened_at_exactly_when_not_closed CHECK ((opened_at IS NOT NULL) = (state <> 'closed')),
    CONSTRAINT opened_by_hand_is_open CHECK (NOT by_hand OR state = 'open'),
    CONSTRAINT trial_only_when_half_open CHECK (trial_job IS NULL OR state = 'half_open')
) WITH (fillfactor = 50);

INSERT INTO {schema}.circuit_breaker DEFAULT VALUES;
