-- The rights that each kind of program needs, as group roles without a login. Run by the owner of the tables after
-- `convertq migrate`, and again after an upgrade; running it twice changes nothing.
--
--     psql -v schema=public -f sql/roles.sql DATABASE        (not DATABASE_URL: psql knows no ?schema=)
--     CREATE ROLE converter LOGIN PASSWORD '…' IN ROLE convertq_worker;
--
-- worker   everything that `convertq` does on a worker host but `migrate`: run, reclaim, retry, submit, cleanup, doctor
-- web      the application that stores uploads: submit, retry, download, and the admin routes
-- monitor  reads: list, show, stats, servers, metrics, doctor
--
-- None of them owns anything: no program can change a table, and only cleanup can delete events. Triggers run with the
-- rights of whoever writes, so a role that changes a job needs what the triggers touch: events, progress, the breaker.
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
    :"schema".servers, :"schema".circuit_breaker, :"schema".counters, :"schema".counters_place,
    :"schema".schema_migrations TO :"worker", :"web", :"monitor";

GRANT INSERT, UPDATE ON :"schema".jobs TO :"worker", :"web";
GRANT INSERT ON :"schema".job_events, :"schema".job_dependencies TO :"worker", :"web";
GRANT INSERT, UPDATE, DELETE ON :"schema".job_progress TO :"worker";
GRANT DELETE ON :"schema".job_progress TO :"web";     -- a trigger's, when a job leaves `processing`
GRANT UPDATE ON :"schema".circuit_breaker TO :"worker", :"web";
GRANT INSERT, UPDATE, DELETE ON :"schema".servers TO :"worker";
GRANT UPDATE ON :"schema".servers TO :"web";          -- reclaim declares silent ones dead
GRANT DELETE ON :"schema".job_events TO :"worker";    -- cleanup
GRANT INSERT, UPDATE ON :"schema".counters TO :"worker";
GRANT UPDATE ON :"schema".counters_place TO :"worker";

COMMIT;

-- doctor names the sessions that get in the way; without this right it looks only into those of its own user, and says so.
SELECT rolsuper OR pg_has_role(rolname, 'pg_read_all_stats', 'USAGE WITH ADMIN OPTION') AS may_grant
  FROM pg_roles WHERE rolname = current_user
\gset
\if :may_grant
    GRANT pg_read_all_stats TO :"worker", :"monitor";
\endif
