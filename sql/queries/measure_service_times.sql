-- measure_service_times: adds the newest completions to the service times
-- It reads so many at most: a busy queue is sampled. What was measured before counts as so many jobs at most,
-- so that newer times prevail. Another program may have written a completion without its duration, or
-- anything as its duration: it is not counted.
-- Parameters: batch (completions read), memory (jobs)
-- Rows: (none)
WITH read AS MATERIALIZED (
    SELECT job_id, at, meta FROM {schema}.job_events
     WHERE event_type = 'complete' AND at > (SELECT measured_at FROM {schema}.estimate_state)
     ORDER BY at DESC LIMIT %(batch)s
), measured AS (
    SELECT job.route, job.mapping, {schema}.size_class(job.bytes) AS size_class,
           least(greatest((read.meta ->> 'duration_ms')::double precision, 1), 1e8) / 1000 AS seconds,
           greatest(job.attempt_count, 1) AS attempts,
           least(greatest(extract(epoch FROM job.completed_at - job.started_at), 0), 3600) AS elapsed
      FROM read JOIN {schema}.jobs AS job ON job.id = read.job_id
     WHERE jsonb_typeof(read.meta -> 'duration_ms') = 'number' AND job.run = 1 AND job.status = 'complete'
), times AS (
    SELECT route, mapping, size_class, count(*) AS weight, avg(seconds * attempts) AS work_seconds,
           avg(ln(seconds)) AS log_seconds, avg(ln(seconds) ^ 2) AS log_squares,
           avg((attempts > 1)::int) AS retried,
           avg(CASE WHEN attempts > 1 THEN greatest(elapsed - seconds, 0) ELSE 0 END) AS retry_seconds
      FROM measured GROUP BY 1, 2, 3
), added AS (
    INSERT INTO {schema}.service_times AS known
    SELECT * FROM times
    ON CONFLICT (gateway, mapping, size_class) DO UPDATE
       SET (weight, work_seconds, log_seconds, log_squares, retried, retry_seconds) = (
           SELECT old + new, (old * known.work_seconds + new * excluded.work_seconds) / (old + new),
                  (old * known.log_seconds + new * excluded.log_seconds) / (old + new),
                  (old * known.log_squares + new * excluded.log_squares) / (old + new),
                  (old * known.retried + new * excluded.retried) / (old + new),
                  (old * known.retry_seconds + new * excluded.retry_seconds) / (old + new)
             FROM (SELECT least(known.weight, %(memory)s) AS old, excluded.weight AS new) AS given)
)
UPDATE {schema}.estimate_state SET measured_at = newest.at
  FROM (SELECT max(at) AS at FROM read) AS newest WHERE newest.at IS NOT NULL
