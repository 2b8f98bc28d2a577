-- schema_exists: whether migrate must make the schema (a role may use one without the right to make it)
-- Parameters: name
-- Rows: one
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(name)s) AS found
