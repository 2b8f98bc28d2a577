-- list_foreign_mappings: the mappings that servers have declared, except these
-- Parameters: mappings
-- Rows: one per mapping
SELECT mapping FROM {schema}.mapping_routes WHERE mapping <> ALL (%(mappings)s::text[]) AND mapping <> '*'
