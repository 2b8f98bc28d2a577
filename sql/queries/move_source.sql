-- move_source: any state stays so; the row names the copy of its source
-- A row that was changed meanwhile (its source expired) is left alone.
-- Parameters: id, old_location, location
-- Rows: one, or none
UPDATE {schema}.jobs SET upload_path = %(location)s
 WHERE id = %(id)s AND upload_path = %(old_location)s
RETURNING id
