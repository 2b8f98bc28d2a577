-- find_pauses_to_sweep: pauses of owners whose queued jobs may still be in the claim's index
-- Once more after a minute: a transaction that was open when the pause began may have queued jobs since.
-- Parameters: (none)
-- Rows: one per pause: id, now
SELECT id, now() AS now FROM {schema}.pauses
 WHERE owner IS NOT NULL
   AND (swept_at IS NULL OR swept_at < at + interval '1 minute' AND at < now() - interval '1 minute')
