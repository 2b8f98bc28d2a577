-- list_event_partitions: the partitions of job_events by their ids, and the age of their events
-- Ids rise with time, near enough: count_range reads every event before a partition is dropped.
-- Parameters: days, filled_within (days)
-- Rows: one per partition but the default one: name, first_id, last_id, is_full (no event goes there now),
--       ends_old (its last event is old, or it is empty), filled_fast
SELECT partition.name, partition.first_id, partition.last_id,
       partition.last_id < sequence.last_value AS is_full,
       coalesce(last.at < now() - %(days)s * interval '1 day', true) AS ends_old,
       coalesce(first.at >= last.at - %(filled_within)s * interval '1 day', true) AS filled_fast
  FROM {schema}.job_events_id_seq AS sequence, {schema}.event_partitions() AS partition
  LEFT JOIN LATERAL (
       SELECT at FROM {schema}.job_events WHERE id >= partition.first_id AND id <= partition.last_id
        ORDER BY id LIMIT 1) AS first ON true
  LEFT JOIN LATERAL (
       SELECT at FROM {schema}.job_events WHERE id >= partition.first_id AND id <= partition.last_id
        ORDER BY id DESC LIMIT 1) AS last ON true
 ORDER BY partition.first_id
