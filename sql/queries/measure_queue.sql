-- measure_queue: marks every 250th job of each route, for list_far_positions
-- Parameters: at_most (jobs read of each route)
-- Rows: one: marks
WITH found AS MATERIALIZED (
    SELECT breaker.gateway AS route, numbered.*
      FROM {schema}.circuit_breaker AS breaker
     CROSS JOIN LATERAL (
           SELECT -priority::bigint AS first, turn, created_at, id, number FROM (
               SELECT priority, turn, created_at, id, row_number() OVER (ORDER BY {claim_order}) AS number
                 FROM {schema}.jobs
                WHERE status = 'queued' AND retry_after IS NULL AND route = breaker.gateway
                ORDER BY {claim_order} LIMIT %(at_most)s) AS job
            WHERE mod(number, 250) = 0) AS numbered
), gone AS (
    DELETE FROM {schema}.queue_marks AS mark
     WHERE place > (SELECT coalesce(max(number), 0) FROM found WHERE found.route = mark.route)
), marked AS (
    INSERT INTO {schema}.queue_marks AS mark
    SELECT route, number, first, turn, created_at, id FROM found
    ON CONFLICT (route, place) DO UPDATE
       SET claim_priority = excluded.claim_priority, claim_turn = excluded.claim_turn,
           claim_created_at = excluded.claim_created_at, claim_id = excluded.claim_id
     WHERE mark.claim_id <> excluded.claim_id
)
SELECT count(*) AS marks FROM found
