-- get_covered_ratio: of the last completed jobs of the sample, the share that was done by its done_by
-- Parameters: scores (at most)
-- Rows: one: ratio, null before the first
SELECT avg(covered::int)::double precision AS ratio
  FROM (SELECT covered FROM {schema}.estimate_scores ORDER BY id DESC LIMIT %(scores)s) AS last
