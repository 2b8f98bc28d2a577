-- count_stored_jobs: how many jobs list_stored_jobs will list
-- Parameters: (none)
-- Rows: one: jobs
SELECT count(*) AS jobs FROM {schema}.jobs
 WHERE upload_path IS NOT NULL OR result_path IS NOT NULL OR NOT {schema}.is_terminal(status)
