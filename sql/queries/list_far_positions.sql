-- list_far_positions: how many jobs of their route are before these jobs, which are behind its first at_most
-- Up to the nearest mark (measure_queue) behind the first jobs it is an estimate, from there on a count.
-- Parameters: ids, at_most, count_up_to (jobs counted for each)
-- Rows: one per job: id, number
WITH job AS MATERIALIZED (
    SELECT id, route, -priority::bigint AS first, turn, created_at FROM {schema}.jobs
     WHERE id = ANY (%(ids)s::uuid[])
), front AS MATERIALIZED (
    SELECT route, border.*, {schema}.place_of_mark(route, first, turn, created_at, id) AS marked
      FROM (SELECT DISTINCT route FROM job) AS known
     CROSS JOIN LATERAL (
           SELECT -priority::bigint AS first, turn, created_at, id FROM {schema}.jobs AS other
            WHERE status = 'queued' AND retry_after IS NULL AND other.route = known.route
            ORDER BY {claim_order} OFFSET %(at_most)s - 1 LIMIT 1) AS border
)
SELECT job.id, %(at_most)s + greatest(mark.place - front.marked, 0) + (
           SELECT count(*) FROM (
               SELECT FROM {schema}.jobs AS other
                WHERE status = 'queued' AND retry_after IS NULL AND other.route = job.route
                  AND ({claim_order}) > (start.first, start.turn, start.created_at, start.id)
                  AND ({claim_order}) < (job.first, job.turn, job.created_at, job.id)
                ORDER BY {claim_order} LIMIT %(count_up_to)s) AS counted) AS number
  FROM job JOIN front ON front.route = job.route
  LEFT JOIN LATERAL (
       SELECT place, claim_priority AS first, claim_turn AS turn, claim_created_at AS created_at,
              claim_id AS id
         FROM {schema}.queue_marks AS mark
        WHERE mark.route = job.route
          AND (claim_priority, claim_turn, claim_created_at, claim_id)
              <= (job.first, job.turn, job.created_at, job.id)
          AND (claim_priority, claim_turn, claim_created_at, claim_id)
              > (front.first, front.turn, front.created_at, front.id)
        ORDER BY place DESC LIMIT 1) AS mark ON true
 CROSS JOIN LATERAL (
       SELECT coalesce(mark.first, front.first) AS first, coalesce(mark.turn, front.turn) AS turn,
              coalesce(mark.created_at, front.created_at) AS created_at,
              coalesce(mark.id, front.id) AS id) AS start
