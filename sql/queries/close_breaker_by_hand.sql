-- close_breaker_by_hand: open or half_open -> closed; the window starts again
-- Parameters: (none)
-- Rows: one, or none when it was closed already: seconds that it was open
WITH old AS MATERIALIZED (
    SELECT only_row, opened_at FROM {schema}.circuit_breaker WHERE state <> 'closed' FOR UPDATE)
UPDATE {schema}.circuit_breaker AS breaker
   SET state = 'closed', by_hand = false, opened_at = NULL, probe_after = NULL, probe_by = NULL,
       trial_job = NULL,
       open_seconds = open_seconds + extract(epoch FROM now() - old.opened_at),
       window_after = (SELECT coalesce(max(id), 0) FROM {schema}.job_events)
  FROM old
 WHERE breaker.only_row = old.only_row
RETURNING extract(epoch FROM now() - old.opened_at)::double precision AS seconds
