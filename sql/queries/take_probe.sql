-- take_probe: open -> open with one prober in the cluster; or half_open -> open, when nothing was tried
-- Parameters: gateway, holder, probe_timeout (s), cooldown_ms
-- Rows: one for the worker that acted: is_mine says whether it is to probe
UPDATE {schema}.circuit_breaker
   SET state = 'open',
       probe_by = CASE state WHEN 'open' THEN %(holder)s END,
       probe_after = now() + CASE state WHEN 'open' THEN make_interval(secs => %(probe_timeout)s)
                                        ELSE %(cooldown_ms)s * interval '1 millisecond' END
 WHERE gateway = %(gateway)s AND state IN ('open', 'half_open') AND NOT by_hand
   AND trial_job IS NULL AND probe_after <= now()
RETURNING probe_by IS NOT NULL AS is_mine
