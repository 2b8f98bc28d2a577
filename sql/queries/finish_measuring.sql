-- finish_measuring: what this turn has measured, and the factors that follow from the last scores
-- The factor of done_by is the one with which nine of ten of the last estimates would have been right, that
-- of done_at the one for five of ten. With few scores both are near 1.
-- Parameters: seen_event, pause (s until the next turn), marks_pause (s, null without marks),
--   scores (read at most)
-- Rows: (none)
UPDATE {schema}.estimate_state
   SET seen_event = %(seen_event)s, next_at = now() + make_interval(secs => %(pause)s),
       marks_due_at = coalesce(now() + make_interval(secs => %(marks_pause)s), marks_due_at),
       median_factor = least(greatest(learned.median_factor, 0.25), 8),
       late_factor = least(greatest(learned.late_factor, 0.25), 8)
  FROM (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY median_ratio) ^ trust AS median_factor,
               percentile_cont(0.9) WITHIN GROUP (ORDER BY late_ratio) ^ trust AS late_factor
          FROM (SELECT median_ratio, late_ratio, count(*) OVER () / (count(*) OVER () + 20.0) AS trust
                  FROM (SELECT greatest(median_ratio, 0.001) AS median_ratio,
                               greatest(late_ratio, 0.001) AS late_ratio
                          FROM {schema}.estimate_scores ORDER BY id DESC LIMIT %(scores)s) AS last) AS score
         GROUP BY trust
        UNION ALL SELECT 1, 1 LIMIT 1) AS learned
