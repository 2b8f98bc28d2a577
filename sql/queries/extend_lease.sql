-- extend_lease: processing -> processing, for its holder alone
-- Parameters: id, holder, attempt, run, lease_ttl (s)
-- Rows: one, or none when the lease is lost
UPDATE {schema}.jobs
   SET lease_expires_at = now() + make_interval(secs => %(lease_ttl)s)
 WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s AND run = %(run)s
RETURNING id
