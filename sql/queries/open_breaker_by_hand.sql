-- open_breaker_by_hand: closed, half_open or open -> open, without probes, until it is closed by hand
-- An opening that is under way keeps its beginning; a trial under way no longer closes it. A gateway that no
-- server has declared yet gets its row.
-- Parameters: gateways (their names)
-- Rows: one per breaker that was not open by hand: gateway, came_from
WITH old AS MATERIALIZED (
    SELECT gateway, state, by_hand FROM {schema}.circuit_breaker
     WHERE gateway = ANY (%(gateways)s::text[]) ORDER BY gateway FOR UPDATE
), opened AS (
    INSERT INTO {schema}.circuit_breaker AS breaker (gateway, state, by_hand, opened_at)
    SELECT DISTINCT name, 'open', true, now()
      FROM (SELECT count(*) FROM old) AS locked, unnest(%(gateways)s::text[]) AS name ORDER BY name
    ON CONFLICT (gateway) DO UPDATE
       SET state = 'open', by_hand = true, opened_at = coalesce(breaker.opened_at, now()),
           probe_after = NULL, probe_by = NULL, trial_job = NULL
     WHERE NOT breaker.by_hand
    RETURNING gateway
)
SELECT opened.gateway, coalesce(old.state, 'closed') AS came_from FROM opened LEFT JOIN old USING (gateway)
