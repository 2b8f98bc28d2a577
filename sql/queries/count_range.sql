-- count_range: how many events a range of ids has, and whether all of them have been kept for long enough
-- Parameters: days, after, upto
-- Rows: one: events, are_old, xmin (what transactions from this one on have written may be missing)
SELECT count(*) AS events, coalesce(bool_and(at < now() - %(days)s * interval '1 day'), true) AS are_old,
       pg_snapshot_xmin(pg_current_snapshot())::text AS xmin
  FROM {schema}.job_events
 WHERE id > %(after)s AND id <= %(upto)s
