-- release_trial: half_open -> half_open, after a trial that made no call; the same worker may try another job
-- It has as long for that as it had for the first one (settle_probe); after that take_probe opens the
-- breaker again.
-- Parameters: id (the job that was the trial)
-- Rows: one, or none when it is not the trial any more
UPDATE {schema}.circuit_breaker
   SET trial_job = NULL, probe_after = now() + greatest(cooldown, interval '1 second')
 WHERE state = 'half_open' AND trial_job = %(id)s
RETURNING state
