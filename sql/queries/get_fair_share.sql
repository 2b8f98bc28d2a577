-- get_fair_share: how owners share the workers now, and what is left to do for it
-- Parameters: (none)
-- Rows: one: takes_turns, owner_max_running (0: no limit), jobs_follow (false: renew_turns has to run),
--   has_over_cap (jobs wait because of the limit of their owner)
SELECT takes_turns, owner_max_running, jobs_follow,
       EXISTS (SELECT FROM {schema}.jobs WHERE over_cap) AS has_over_cap
  FROM {schema}.fair_share
