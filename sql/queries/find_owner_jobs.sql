-- find_owner_jobs: every job of an owner
-- Parameters: owner
-- Rows: one per job: id
SELECT id FROM {schema}.jobs WHERE owner_session_id = %(owner)s
