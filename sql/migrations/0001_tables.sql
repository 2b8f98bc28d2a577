-- The tables, their invariants, and the indexes of the hot path.
--
-- Rules that the numbers below follow:
--   * lease, heartbeat and progress columns are in no index, so that extending a lease is a HOT update;
--   * an index on the hot path is partial: it holds only the rows that the hot path can want;
--   * fillfactor leaves room on the page for the next version of a row that is about to change.

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
    priority            integer     NOT NULL DEFAULT 0,
    status              text        NOT NULL DEFAULT 'uploaded',
    upload_path         text,
    result_path         text,
    error_code          text,
    error_message       text,
    attempt_count       integer     NOT NULL DEFAULT 0,
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
    duplicate_of        uuid        REFERENCES {schema}.jobs (id),

    CONSTRAINT one_job_per_owner_and_content UNIQUE (owner_session_id, sha256, mapping, bytes),
    CONSTRAINT file_is_not_empty CHECK (bytes > 0),
    CONSTRAINT status_is_known
        CHECK (status IN ('uploaded', 'queued', 'processing', 'complete', 'failed')),
    CONSTRAINT lease_held_exactly_while_processing
        CHECK (num_nonnulls(leased_by, lease_expires_at) = CASE status WHEN 'processing' THEN 2 ELSE 0 END),
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

-- The claim reads this in order. Jobs that wait for a retry are not in it (promote_due_jobs lets them in), so a
-- claim never walks over rows that it may not take. Negated, because a watermark is one row comparison.
CREATE INDEX jobs_claimable ON {schema}.jobs ((-priority::bigint), created_at, id)
    WHERE status = 'queued' AND retry_after IS NULL;
CREATE INDEX jobs_waiting_for_retry ON {schema}.jobs (retry_after)
    WHERE status = 'queued' AND retry_after IS NOT NULL;
-- Reclaim, dead workers, "what runs now": few rows, none of them indexed by lease.
CREATE INDEX jobs_processing ON {schema}.jobs (id) WHERE status = 'processing';
CREATE INDEX jobs_by_owner ON {schema}.jobs (owner_session_id, created_at DESC, id);
CREATE INDEX jobs_by_owner_and_status ON {schema}.jobs (owner_session_id, status);
CREATE INDEX jobs_by_status ON {schema}.jobs (status, created_at DESC);
CREATE INDEX jobs_failed_by_code ON {schema}.jobs (error_code, created_at DESC) WHERE status = 'failed';


CREATE TABLE {schema}.job_events (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     uuid        NOT NULL REFERENCES {schema}.jobs (id),
    event_type text        NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    meta       jsonb       NOT NULL DEFAULT '{}',
    xact_id    xid8        NOT NULL DEFAULT pg_current_xact_id(), -- the transaction that wrote it

    CONSTRAINT event_type_is_known CHECK (event_type IN (
        'created', 'queued', 'processing', 'retry', 'requeued', 'reclaimed',
        'complete', 'failed', 'downloaded', 'expired'))
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);

CREATE INDEX job_events_by_job ON {schema}.job_events (job_id, id);
-- The breaker's window: the last gateway calls, newest first, in whatever job.
CREATE INDEX job_events_gateway_calls ON {schema}.job_events (id) WHERE meta ? 'gateway_ok';


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
CREATE INDEX job_dependencies_by_dependency ON {schema}.job_dependencies (depends_on);


-- jobs.leased_by names a server without a foreign key: a history must never hold up a table that churns.
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
    stopped_at        timestamptz,

    CONSTRAINT server_status_is_known CHECK (status IN ('active', 'draining', 'stopped', 'dead'))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);


CREATE TABLE {schema}.circuit_breaker (
    only_row     boolean          PRIMARY KEY DEFAULT true,
    state        text             NOT NULL DEFAULT 'closed',
    by_hand      boolean          NOT NULL DEFAULT false,  -- opened by an operator: no probes
    cooldown     interval         NOT NULL DEFAULT '30 s', -- as whoever opened it was configured
    opened_at    timestamptz,                              -- of this opening, through all its probes
    probe_after  timestamptz,                              -- the next probe, or the end of a probe under way
    probe_by     text,                                     -- the one worker that probes and runs the trial
    trial_job    uuid,                                     -- the one job that half-open let through
    window_after bigint           NOT NULL DEFAULT 0,      -- calls up to this event id count no more
    open_seconds double precision NOT NULL DEFAULT 0,      -- of all openings that have ended

    CONSTRAINT there_is_one_breaker CHECK (only_row),
    CONSTRAINT breaker_state_is_known CHECK (state IN ('closed', 'open', 'half_open')),
    CONSTRAINT opened_at_exactly_when_not_closed CHECK ((opened_at IS NOT NULL) = (state <> 'closed')),
    CONSTRAINT opened_by_hand_is_open CHECK (NOT by_hand OR state = 'open'),
    CONSTRAINT trial_only_when_half_open CHECK (trial_job IS NULL OR state = 'half_open')
) WITH (fillfactor = 50);

INSERT INTO {schema}.circuit_breaker DEFAULT VALUES;
