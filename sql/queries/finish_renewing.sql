-- finish_renewing: no claimable job has a turn of an earlier setting any more
-- Parameters: oldest (the oldest transaction that was running when the pass began, in which none was found)
-- Rows: one, or none while a transaction runs that may have read the earlier setting
UPDATE {schema}.fair_share SET jobs_follow = true WHERE NOT jobs_follow AND changed_by < %(oldest)s::xid8
RETURNING only_row
