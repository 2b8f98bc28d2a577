-- has_dependencies: whether a job was made to wait for others, complete ones included
-- Parameters: id
-- Rows: one
SELECT EXISTS (SELECT FROM {schema}.job_dependencies WHERE job_id = %(id)s) AS found
