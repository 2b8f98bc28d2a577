-- lock_estimates: takes the turn to measure, if it is due and something has happened since the last one
-- One session at a time: the others find the row locked, or measured just now.
-- Parameters: (none)
-- Rows: one, or none when there is nothing to do: seen_event, last_event, marks_are_due, history_is_due
WITH drawn AS MATERIALIZED (SELECT last_value AS last_event FROM {schema}.job_events_id_seq)
SELECT seen_event, (SELECT last_event FROM drawn), marks_due_at <= now() AS marks_are_due,
       history_due_at <= now() AS history_is_due
  FROM {schema}.estimate_state
 WHERE next_at <= now() AND seen_event < (SELECT last_event FROM drawn)
   FOR UPDATE SKIP LOCKED
