-- supports code from: 6
--
-- Limits that adapt to what a gateway can bear (`max_calls = "auto"`). Claims read circuit_breaker.max_calls
-- and gateway_slots (0012) as before; what is here decides that number, once a second.

-- One row per gateway that an active server declares as adaptive. The supervisor that locks it decides.
CREATE TABLE {schema}.gateway_limits (
    gateway         text        PRIMARY KEY,
    max_calls       integer     NOT NULL,              -- as decided last
    most_calls      integer     NOT NULL,              -- the workers of active servers, or a smaller limit
    state           jsonb       NOT NULL DEFAULT '{}', -- what the next decision needs (AdaptiveLimit)
    reason          text        NOT NULL DEFAULT 'new',
    reason_since    timestamptz NOT NULL DEFAULT now(),
    decided_at      timestamptz NOT NULL DEFAULT '-infinity',
    recorded_calls  integer,                           -- as the last event says; null: there was none
    recorded_reason text,
    recorded_at     timestamptz,

    CONSTRAINT an_adaptive_limit_allows_a_call CHECK (max_calls > 0 AND most_calls > 0)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- What the workers of one host have measured since its supervisor reported last. A decision removes it.
CREATE TABLE {schema}.measured_calls (
    id      bigint             GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    gateway text               NOT NULL REFERENCES {schema}.gateway_limits ON DELETE CASCADE,
    numbers double precision[] NOT NULL                -- a Sample: see queue/adaptive_limit.py
) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

CREATE INDEX measured_calls_by_gateway ON {schema}.measured_calls (gateway);
