-- begin_behind_pooler: how a worker begins a transaction where a pooler allows no settings of the session
-- The isolation level, the limits and the choices of the planner are those of a worker's own session
-- (queue/database/connection.py). Sent in one message with the statements that follow, a command a line.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE;
SET LOCAL lock_timeout = {lock_timeout_ms};
SET LOCAL idle_in_transaction_session_timeout = {idle_timeout_ms};
SET LOCAL enable_sort = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL jit = off;
