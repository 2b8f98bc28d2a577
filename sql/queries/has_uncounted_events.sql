-- has_uncounted_events: whether more than so many events are not aggregated into the counters yet
-- It reads that many entries of an index at most. The range of xact_id is implied: with it the planner
-- expects few events and uses that index.
-- Parameters: events
-- Rows: one: has_more
WITH reached AS MATERIALIZED (SELECT xact_id, event_id, floor_id FROM {schema}.counters_position)
SELECT EXISTS (
    SELECT FROM {schema}.job_events AS event
     WHERE (event.xact_id, event.id) > ((SELECT xact_id FROM reached), (SELECT event_id FROM reached))
       AND event.xact_id BETWEEN (SELECT xact_id FROM reached) AND '9223372036854775807'
       AND event.id > (SELECT floor_id FROM reached)
     ORDER BY event.xact_id, event.id
    OFFSET %(events)s LIMIT 1) AS has_more
