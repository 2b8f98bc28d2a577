-- count_active_jobs: how many of an owner's jobs are unfinished
-- Parameters: owner
-- Rows: one: active
SELECT count(*) AS active FROM {schema}.jobs
 WHERE owner_session_id = %(owner)s AND {schema}.is_active(status)
