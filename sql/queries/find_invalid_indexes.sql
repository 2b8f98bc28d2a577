-- find_invalid_indexes: which of these a CREATE INDEX CONCURRENTLY that was interrupted has left behind
-- Parameters: schema_name, names
-- Rows: one per index: removal, the statement that drops it
SELECT format('DROP INDEX CONCURRENTLY %%I.%%I', place.nspname, index.relname) AS removal
  FROM pg_index JOIN pg_class AS index ON index.oid = pg_index.indexrelid
  JOIN pg_namespace AS place ON place.oid = index.relnamespace
 WHERE place.nspname = %(schema_name)s AND index.relname = ANY (%(names)s) AND NOT pg_index.indisvalid
