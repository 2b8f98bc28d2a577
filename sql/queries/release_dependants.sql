-- release_dependants: uploaded -> queued, one slice of the dependants that completing transactions have left
-- They left what somebody had locked, and what was beyond the first 1,000 of a job. No lock is waited for.
-- Parameters: after_depends_on, after_job (the position to start after)
-- Rows: one: the position to continue from, or nulls when everything was tried
SELECT after_depends_on, after_job
  FROM {schema}.release_dependants(%(after_depends_on)s, %(after_job)s)
