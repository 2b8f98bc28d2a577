-- release_slots: frees the slots of a worker that has closed its connection to the gateway, or has ended
-- A host that waits is notified: one of its workers may have found no slot before.
-- Parameters: holder
-- Rows: one per slot: gateway
WITH freed AS (
    UPDATE {schema}.gateway_slots SET holder = NULL, taken_at = NULL
     WHERE holder = %(holder)s RETURNING gateway
)
SELECT gateway, CASE WHEN {schema}.somebody_waits() THEN {schema}.wake_servers(1) END AS woken FROM freed
