-- close_breaker_by_hand: open or half_open -> closed; the window starts again
-- Parameters: gateways (their names)
-- Rows: one per breaker that was not closed: gateway, seconds that it was open
WITH old AS MATERIALIZED (
    SELECT gateway, opened_at FROM {schema}.circuit_breaker
     WHERE state <> 'closed' AND gateway = ANY (%(gateways)s::text[]) ORDER BY gateway FOR UPDATE)
UPDATE {schema}.circuit_breaker AS breaker
   SET state = 'closed', by_hand = false, opened_at = NULL, probe_after = NULL, probe_by = NULL,
       trial_job = NULL,
       open_seconds = open_seconds + extract(epoch FROM now() - old.opened_at),
       window_after = (SELECT coalesce(max(id), 0) FROM {schema}.job_events)
  FROM old
 WHERE breaker.gateway = old.gateway
RETURNING breaker.gateway, extract(epoch FROM now() - old.opened_at)::double precision AS seconds
