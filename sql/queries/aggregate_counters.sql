-- aggregate_counters: adds the oldest events that are not counted yet to the counters
-- Below the oldest transaction that still runs no event can appear any more. One session at a time
-- aggregates: the others find the position locked. Old partitions are not read: 0005 proves that no event up
-- to floor_id is left.
-- Parameters: batch (events at most)
-- Rows: one, or none when another session aggregates: events, is_restored (the position is of a cluster that
--       this one is a dump of)
WITH reached AS MATERIALIZED (
    SELECT xact_id, event_id, floor_id FROM {schema}.counters_position FOR UPDATE SKIP LOCKED
), last AS MATERIALIZED (
    SELECT xact_id, id, count(*) OVER () AS events
      FROM (SELECT event.xact_id, event.id
              FROM {schema}.job_events AS event
             WHERE (event.xact_id, event.id) > ((SELECT xact_id FROM reached), (SELECT event_id FROM reached))
               AND event.xact_id < pg_snapshot_xmin(pg_current_snapshot())
               AND event.xact_id >= (SELECT xact_id FROM reached)  -- implied, for the planner: a short range
               AND event.id > (SELECT floor_id FROM reached)
             ORDER BY event.xact_id, event.id
             LIMIT %(batch)s) AS batch
     ORDER BY xact_id DESC, id DESC
     LIMIT 1
), added AS (
    INSERT INTO {schema}.counters AS counter (name, label, value)
    SELECT counted.name, counted.label, counted.amount
      FROM reached, last,
           {schema}.count_events(reached.xact_id, reached.event_id, last.xact_id, last.id) AS counted
     WHERE counted.amount <> 0
    ON CONFLICT (name, label) DO UPDATE SET value = counter.value + excluded.value
), moved AS (
    UPDATE {schema}.counters_position AS reached
       SET xact_id = last.xact_id, event_id = last.id,
           floor_id = CASE WHEN last.xact_id >= mark_xact THEN mark_id ELSE floor_id END,
           mark_xact = CASE WHEN last.xact_id < mark_xact THEN mark_xact END,
           mark_id = CASE WHEN last.xact_id < mark_xact THEN mark_id END
      FROM last
)
SELECT coalesce((SELECT events FROM last), 0) AS events,
       reached.xact_id >= pg_snapshot_xmax(pg_current_snapshot()) AS is_restored
  FROM reached
