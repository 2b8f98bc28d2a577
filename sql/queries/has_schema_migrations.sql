-- has_schema_migrations: whether migrate has ever run in this schema
-- Parameters: name
-- Rows: one
SELECT EXISTS (
    SELECT FROM pg_class AS list JOIN pg_namespace AS place ON place.oid = list.relnamespace
     WHERE place.nspname = %(name)s AND list.relname = 'schema_migrations') AS found
