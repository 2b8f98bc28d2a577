-- set_fair_share: how owners share the workers from now on, as the supervisor that starts says
-- Parameters: takes_turns, owner_max_running (0: no limit)
-- Rows: one, or none when it is so already
UPDATE {schema}.fair_share
   SET takes_turns = %(takes_turns)s, owner_max_running = %(owner_max_running)s, jobs_follow = false,
       changed_by = pg_current_xact_id()
 WHERE takes_turns <> %(takes_turns)s OR owner_max_running <> %(owner_max_running)s
RETURNING takes_turns, owner_max_running
