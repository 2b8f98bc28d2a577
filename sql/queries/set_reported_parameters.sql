-- set_reported_parameters: how this session writes times and text
-- PgBouncer keeps these three for each of its clients.
-- Parameters: (none)
-- Rows: one
SELECT set_config('DateStyle', 'ISO', false), set_config('TimeZone', 'UTC', false),
       set_config('client_encoding', 'UTF8', false)
