-- fold_counters: adds the oldest events that are not counted yet to the counters
-- Below the oldest transaction that still runs nothing can appear any more. One at a time: others find the place locked.
-- Parameters: batch (events at most)
-- Rows: one, or none when somebody else folds: events, and whether the ids are of a cluster that this is a dump of
WITH place AS MATERIALIZED (
    SELECT xact_id, event_id FROM {schema}.counters_place FOR UPDATE SKIP LOCKED
), last AS MATERIALIZED (
    SELECT xact_id, id, count(*) OVER () AS events
      FROM (SELECT event.xact_id, event.id
              FROM {schema}.job_events AS event
             WHERE (event.xact_id, event.id) > ((SELECT xact_id FROM place), (SELECT event_id FROM place))
               AND event.xact_id < pg_snapshot_xmin(pg_current_snapshot())
             ORDER BY event.xact_id, event.id
             LIMIT %(batch)s) AS batch
     ORDER BY xact_id DESC, id DESC
     LIMIT 1
), added AS (
    INSERT INTO {schema}.counters AS counter (name, label, value)
    SELECT counted.name, counted.label, counted.amount
      FROM place, last, {schema}.count_events(place.xact_id, place.event_id, last.xact_id, last.id) AS counted
     WHERE counted.amount <> 0
    ON CONFLICT (name, label) DO UPDATE SET value = counter.value + excluded.value
), moved AS (
    UPDATE {schema}.counters_place SET xact_id = last.xact_id, event_id = last.id FROM last
)
SELECT coalesce((SELECT events FROM last), 0) AS events,
       place.xact_id >= pg_snapshot_xmax(pg_current_snapshot()) AS is_restored
  FROM place
