-- A job that was queued because the last one that it waited for is complete says so in its event. Without one of its own
-- it would get the trigger's, which is for other programs, and nobody could tell why it was queued then.

CREATE OR REPLACE FUNCTION {schema}.queue_when_dependencies_are_complete(dependants uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.jobs WHERE id = ANY (dependants) AND status = 'uploaded' ORDER BY id FOR UPDATE;
    WITH released AS (
        UPDATE {schema}.jobs AS dependant SET status = 'queued', queued_at = now()
         WHERE id = ANY (dependants) AND status = 'uploaded'
           AND NOT EXISTS (
               SELECT FROM {schema}.job_dependencies AS link JOIN {schema}.jobs AS needed ON needed.id = link.depends_on
                WHERE link.job_id = dependant.id AND needed.status <> 'complete')
        RETURNING id
    )
    INSERT INTO {schema}.job_events (job_id, event_type, meta) SELECT id, 'queued', '{"by": "dependencies"}' FROM released;
END $$;
