-- create_schema: the schema that DATABASE_URL names
-- Parameters: (none)
-- Rows: (none)
CREATE SCHEMA IF NOT EXISTS {schema}
