-- What the admin page draws minute by minute, found by time.
--
-- Only jobs that are tried again are in it: few events pay for it, and those of a job that goes well never do. With
-- job_events_outcomes it tells when jobs came back to the queue and when they left it.

CREATE INDEX job_events_again ON {schema}.job_events (event_type, at)
    WHERE event_type = 'retry' OR (event_type = 'queued' AND meta ? 'reason');
