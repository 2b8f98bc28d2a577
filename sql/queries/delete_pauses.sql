-- delete_pauses: ends a pause, or all; jobs of an owner are moved by resume_jobs
-- Parameters: every, gateway, owner (null: the pause that names none)
-- Rows: one per pause that has ended: gateway, owner
DELETE FROM {schema}.pauses
 WHERE %(every)s
    OR gateway IS NOT DISTINCT FROM %(gateway)s::text AND owner IS NOT DISTINCT FROM %(owner)s::text
RETURNING gateway, owner
