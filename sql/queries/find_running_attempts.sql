-- find_running_attempts: which of these jobs are being converted, and in which attempt
-- Parameters: ids
-- Rows: one per job that is: id, attempt
SELECT id, attempt_count AS attempt FROM {schema}.jobs WHERE id = ANY (%(ids)s::uuid[]) AND status = 'processing'
