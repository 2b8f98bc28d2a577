-- report_progress: processing -> processing, shows how far the attempt is and extends its lease
-- Parameters: id, holder, attempt, run, lease_ttl (s), step, percent, bytes_done, bytes_total, message
-- Rows: one, or none when the lease is lost
WITH mine AS (
    UPDATE {schema}.jobs
       SET lease_expires_at = now() + make_interval(secs => %(lease_ttl)s), needs_follow_up = true
     WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s AND run = %(run)s
    RETURNING id
)
INSERT INTO {schema}.job_progress AS progress (job_id, step, percent, bytes_done, bytes_total, message)
SELECT id, %(step)s, %(percent)s, %(bytes_done)s, %(bytes_total)s, %(message)s FROM mine
ON CONFLICT (job_id) DO UPDATE
   SET step = excluded.step, percent = excluded.percent, bytes_done = excluded.bytes_done,
       bytes_total = excluded.bytes_total, message = excluded.message, updated_at = clock_timestamp()
RETURNING job_id AS id
