-- inspect_event_partitions: whether events have a partition to go to, now and later
-- Parameters: (none)
-- Rows: one: has_current, ahead (partitions after the current one), in_default (events there, 10,000 at most)
SELECT coalesce(bool_or(last_value BETWEEN first_id AND last_id), false) AS has_current,
       count(*) FILTER (WHERE first_id > last_value) AS ahead,
       (SELECT count(*) FROM (SELECT FROM {schema}.job_events_default LIMIT 10000) AS counted) AS in_default
  FROM {schema}.job_events_id_seq LEFT JOIN {schema}.event_partitions() ON true
