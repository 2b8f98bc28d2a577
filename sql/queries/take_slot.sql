-- take_slot: takes a free slot of a limited gateway for a worker
-- Simultaneous claims take different rows and never wait. Not more slots are taken than the limit allows,
-- also while calls from before a lower limit are under way: the slots above the taken one are all counted,
-- and below it are fewer than its number.
-- A server that was marked dead holds none, so its workers take none either.
-- Parameters: gateway, holder, server (of the holder)
-- Rows: one, or none without a free slot: number
WITH free AS MATERIALIZED (
    SELECT slot.number
      FROM {schema}.gateway_slots AS slot
      JOIN {schema}.circuit_breaker AS breaker ON breaker.gateway = slot.gateway
     WHERE slot.gateway = %(gateway)s AND slot.holder IS NULL AND slot.number <= breaker.max_calls
       AND slot.number + (
               SELECT count(*) FROM {schema}.gateway_slots AS other
                WHERE other.gateway = slot.gateway AND other.number > slot.number
                  AND other.holder IS NOT NULL)
           <= breaker.max_calls
       AND EXISTS (SELECT FROM {schema}.servers WHERE id = %(server)s AND status = 'active')
     ORDER BY slot.number LIMIT 1 FOR NO KEY UPDATE OF slot SKIP LOCKED
)
UPDATE {schema}.gateway_slots AS slot SET holder = %(holder)s, taken_at = now()
  FROM free WHERE slot.gateway = %(gateway)s AND slot.number = free.number AND slot.holder IS NULL
RETURNING slot.number
