-- find_new_jobs: some of the jobs that were queued since the last turn, whatever has become of them
-- It reads the newest events only: a sample is enough.
-- Parameters: seen_event, events (read at most), wanted (jobs at most)
-- Rows: one per job: id, run, status, queued_at (of its event), now
SELECT job.id, job.run, job.status, event.at AS queued_at, now() AS now
  FROM (SELECT job_id, event_type, at FROM {schema}.job_events WHERE id > %(seen_event)s
         ORDER BY id DESC LIMIT %(events)s) AS event
  JOIN {schema}.jobs AS job ON job.id = event.job_id
 WHERE event.event_type = 'queued' AND event.at > now() - interval '10 s'
 ORDER BY random() LIMIT %(wanted)s
