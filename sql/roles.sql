-- The rights that each kind of program needs, as group roles without a login. Run by the owner of the
-- tables after `convertq migrate`, and again after an upgrade; running it twice changes nothing.
--
--     psql -v schema=public -f sql/roles.sql DATABASE        (not DATABASE_URL: psql knows no ?schema=)
--     CREATE ROLE converter LOGIN PASSWORD '…' IN ROLE convertq_worker;
--
-- worker   everything that `convertq` does on a worker host except `migrate`:
--          run, reclaim, retry, cancel, submit, cleanup, forget, doctor
-- web      the application that stores uploads: submit, retry, cancel, download, and the admin routes
-- monitor  reads: list, show, stats, servers, metrics, doctor
--
-- None of them owns anything: no program can change a table, and only the worker's role can delete jobs and
-- events. Triggers run with the rights of the writer, so a role that changes a job needs what the triggers
-- touch: events, progress, the breaker, the position of the counters. One trigger has its owner's rights: it
-- removes its own event where a program writes one after its change. So have the functions that create and
-- drop partitions of job_events, which only the worker's role may call.
-- Other names: -v worker=… -v web=… -v monitor=…

\set ON_ERROR_STOP on
\if :{?schema}
\else
    \set schema public
\endif
\if :{?worker}
\else
    \set worker convertq_worker
\endif
\if :{?web}
\else
    \set web convertq_web
\endif
\if :{?monitor}
\else
    \set monitor convertq_monitor
\endif

BEGIN;

SELECT format('CREATE ROLE %I NOLOGIN', name)
  FROM unnest(ARRAY[:'worker', :'web', :'monitor']) AS wanted (name)
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
\gexec

GRANT USAGE ON SCHEMA :"schema" TO :"worker", :"web", :"monitor";
GRANT SELECT ON :"schema".jobs, :"schema".job_events, :"schema".job_progress, :"schema".job_dependencies,
    :"schema".dependants_to_release, :"schema".job_artifacts, :"schema".artifacts,
    :"schema".servers, :"schema".circuit_breaker, :"schema".mapping_routes, :"schema".gateway_slots,
    :"schema".gateway_limits, :"schema".measured_calls, :"schema".counters, :"schema".counters_position,
    :"schema".schema_migrations, :"schema".job_events_default, :"schema".job_events_id_seq,
    :"schema".event_pace,
    :"schema".queue_events, :"schema".pauses, :"schema".fair_share, :"schema".owners, :"schema".turns,
    :"schema".service_times, :"schema".queue_marks,
    :"schema".estimate_samples, :"schema".estimate_scores, :"schema".estimate_state
    TO :"worker", :"web", :"monitor";

-- The web application may write every column of jobs but own_transitions, by which the triggers know the
-- worker's statements that need no trigger (0002_transitions.sql). A right on the whole table would
-- include it.
GRANT INSERT, UPDATE ON :"schema".jobs TO :"worker";
REVOKE INSERT, UPDATE ON :"schema".jobs FROM :"web";
SELECT format('GRANT INSERT (%1$s), UPDATE (%1$s) ON %2$s TO %3$I',
              string_agg(quote_ident(attname), ', ' ORDER BY attnum), attrelid::regclass, :'web')
  FROM pg_attribute
 WHERE attrelid = (quote_ident(:'schema') || '.jobs')::regclass AND attnum > 0 AND NOT attisdropped
   AND attname <> 'own_transitions'
 GROUP BY attrelid
\gexec
GRANT INSERT ON :"schema".job_dependencies TO :"worker", :"web";
-- Nobody chooses the id or the transaction of an event: the aggregation relies on them (0005_counters.sql).
REVOKE INSERT ON :"schema".job_events FROM :"worker", :"web";
GRANT INSERT (job_id, event_type, at, meta) ON :"schema".job_events TO :"worker", :"web";
GRANT USAGE ON SEQUENCE :"schema".job_events_id_seq TO :"worker", :"web";
GRANT INSERT (event_type, at, meta) ON :"schema".queue_events TO :"worker", :"web";
GRANT INSERT, UPDATE, DELETE ON :"schema".pauses TO :"worker", :"web";
GRANT INSERT, UPDATE ON :"schema".dependants_to_release TO :"worker", :"web";  -- a trigger's, at a completion
GRANT DELETE ON :"schema".dependants_to_release TO :"worker";
GRANT INSERT, UPDATE, DELETE ON :"schema".job_progress TO :"worker";
GRANT DELETE ON :"schema".job_progress TO :"web";     -- a trigger's, when a job leaves `processing`
GRANT INSERT, UPDATE ON :"schema".circuit_breaker TO :"worker", :"web";
GRANT INSERT, UPDATE ON :"schema".mapping_routes, :"schema".gateway_slots, :"schema".turns TO :"worker";
GRANT UPDATE ON :"schema".fair_share TO :"worker";    -- a supervisor that starts
GRANT INSERT, UPDATE, DELETE ON :"schema".owners TO :"worker", :"web";  -- weights
GRANT INSERT, UPDATE, DELETE ON :"schema".gateway_limits, :"schema".measured_calls TO :"worker";
GRANT UPDATE ON :"schema".gateway_slots TO :"web";    -- a trigger's, when a server is declared dead
GRANT INSERT, UPDATE, DELETE ON :"schema".servers TO :"worker";
GRANT UPDATE ON :"schema".servers TO :"web";          -- reclaim declares silent ones dead
GRANT INSERT, UPDATE, DELETE ON :"schema".job_artifacts TO :"worker";
-- what the supervisor measures for estimates:
GRANT INSERT, UPDATE, DELETE ON :"schema".service_times, :"schema".queue_marks, :"schema".estimate_samples,
    :"schema".estimate_scores TO :"worker";
GRANT UPDATE ON :"schema".estimate_state TO :"worker";
-- cleanup and forget:
GRANT DELETE ON :"schema".jobs, :"schema".job_dependencies, :"schema".job_events, :"schema".queue_events
    TO :"worker";
GRANT INSERT, UPDATE ON :"schema".counters TO :"worker", :"web";
GRANT UPDATE ON :"schema".counters_position TO :"worker", :"web";
GRANT EXECUTE ON FUNCTION :"schema".recount_jobs() TO :"worker", :"web";
-- the partitions of job_events, which the supervisor creates and cleanup drops:
GRANT EXECUTE ON FUNCTION :"schema".missing_event_partition(integer), :"schema".make_event_partition(integer),
    :"schema".drop_event_partition(text, xid8) TO :"worker";

COMMIT;

-- doctor names the sessions that get in the way; without this right it looks only into those of its own
-- user, and says so.
SELECT rolsuper OR pg_has_role(rolname, 'pg_read_all_stats', 'USAGE WITH ADMIN OPTION') AS may_grant
  FROM pg_roles WHERE rolname = current_user
\gset
\if :may_grant
    GRANT pg_read_all_stats TO :"worker", :"monitor";
\endif
