-- page_of_events: the next events of a range of ids: where the page ends, and whether any of it is old
-- Ids rise with time, near enough: pages without an old event mean that the rest is younger. No index on the
-- time is needed, which every event would have to pay for.
-- Parameters: days, after, last, limit
-- Rows: one; upto is null when there is no further event
SELECT max(id) AS upto, coalesce(bool_or(at < now() - %(days)s * interval '1 day'), false) AS has_old
  FROM (SELECT id, at FROM {schema}.job_events WHERE id > %(after)s AND id <= %(last)s
         ORDER BY id LIMIT %(limit)s) AS page
