-- move_result: complete stays so; the row names the copy of its result
-- A row that was changed meanwhile (its result expired, or the job was started over) is left alone.
-- Parameters: id, old_location, location
-- Rows: one, or none
WITH moved AS (
    UPDATE {schema}.jobs SET result_path = %(location)s
     WHERE id = %(id)s AND result_path = %(old_location)s
    RETURNING id
), artifact AS (
    DELETE FROM {schema}.job_artifacts
     WHERE job_id IN (SELECT id FROM moved) AND path_or_key = %(old_location)s
)
SELECT id FROM moved
