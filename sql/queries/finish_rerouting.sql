-- finish_rerouting: no queued job has the route of an earlier gateway any more
-- Parameters: oldest (the oldest transaction that was running when the pass began, in which none was found)
-- Rows: one per mapping
UPDATE {schema}.mapping_routes SET jobs_follow = true
 WHERE NOT jobs_follow AND changed_by < %(oldest)s::xid8
RETURNING mapping
