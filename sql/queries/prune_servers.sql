-- prune_servers: removes those that are stopped or dead for a minute, and hold no job
-- A minute: a claim that began while the server was active, and that is not visible yet, has long ended.
-- Parameters: (none)
-- Rows: one per server removed
DELETE FROM {schema}.servers AS server
 WHERE server.status IN ('stopped', 'dead') AND server.stopped_at < now() - interval '1 minute'
   AND NOT EXISTS (
       SELECT FROM {schema}.jobs
        WHERE status = 'processing' AND regexp_replace(leased_by, '/[^/]*$', '') = server.id)
RETURNING id
