-- find_owner: whose job it is, and its place in the owner's list; the same work whatever the job is or does
-- Parameters: id
-- Rows: one, or none
SELECT owner_session_id AS owner, created_at FROM {schema}.jobs WHERE id = %(id)s
