-- What cleanup looks for, found without reading what it has dealt with before.
--
-- Both hold only finished jobs that still have something to remove, so a job enters each once, when it ends, and none of
-- the columns moves while a job runs: extending a lease stays a HOT update. greatest() ignores nulls: a program that
-- forgot failed_at gets its retention from the latest moment that is known.

CREATE INDEX jobs_with_a_source_to_remove ON {schema}.jobs (greatest(completed_at, failed_at, created_at), id)
    WHERE upload_path IS NOT NULL AND status IN ('complete', 'failed');
CREATE INDEX jobs_with_a_result_to_remove ON {schema}.jobs (expires_at, id)
    WHERE result_path IS NOT NULL AND status = 'complete';
