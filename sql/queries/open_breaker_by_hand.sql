-- open_breaker_by_hand: closed, half_open or open -> open, without probes, until it is closed by hand
-- An opening that is under way keeps its beginning; a trial under way no longer closes it.
-- Parameters: (none)
-- Rows: one, or none when it was open by hand already: came_from
WITH old AS MATERIALIZED (SELECT only_row, state FROM {schema}.circuit_breaker WHERE NOT by_hand FOR UPDATE)
UPDATE {schema}.circuit_breaker AS breaker
   SET state = 'open', by_hand = true, opened_at = coalesce(opened_at, now()),
       probe_after = NULL, probe_by = NULL, trial_job = NULL
  FROM old
 WHERE breaker.only_row = old.only_row
RETURNING old.state AS came_from
