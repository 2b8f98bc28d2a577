-- score_samples: scores the estimates of jobs that are complete now, and keeps the last scores
-- A job that has ended otherwise, was started over or is gone has no score.
-- Parameters: scores (kept)
-- Rows: one: open (samples of unfinished jobs)
WITH judged AS MATERIALIZED (
    SELECT sample.*, job.completed_at,
           coalesce(job.run = sample.run AND {schema}.is_active(job.status), false) AS is_open,
           coalesce(job.run = sample.run AND job.status = 'complete', false) AS is_scored
      FROM {schema}.estimate_samples AS sample LEFT JOIN {schema}.jobs AS job ON job.id = sample.job_id
), scored AS (
    INSERT INTO {schema}.estimate_scores (covered, median_ratio, late_ratio)
    SELECT completed_at <= done_by,
           greatest(extract(epoch FROM completed_at - estimated_at), 0) / median_seconds,
           greatest(extract(epoch FROM completed_at - estimated_at), 0) / late_seconds
      FROM judged WHERE is_scored ORDER BY completed_at
), removed AS (
    DELETE FROM {schema}.estimate_samples AS sample USING judged
     WHERE sample.job_id = judged.job_id AND NOT is_open
), old AS (
    DELETE FROM {schema}.estimate_scores
     WHERE id <= (SELECT id FROM {schema}.estimate_scores ORDER BY id DESC OFFSET %(scores)s LIMIT 1)
)
SELECT count(*) FILTER (WHERE is_open) AS open FROM judged
