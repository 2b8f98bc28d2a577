-- use_generic_plans: until the end of the transaction, statements are not planned for their parameters
-- A generic plan has all partitions of job_events, and opens only those that the parameters need. A plan for
-- the parameters has only those, but is made each time, which takes longer than to execute it.
-- Parameters: (none)
-- Rows: one
SELECT set_config('plan_cache_mode', 'force_generic_plan', true)
