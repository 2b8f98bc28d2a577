-- report_calls: what the workers of one host have measured, for the next decision about each limit
-- Parameters: measured (JSON array: gateway, numbers)
-- Rows: (none)
INSERT INTO {schema}.measured_calls (gateway, numbers)
SELECT given.gateway, given.numbers
  FROM jsonb_to_recordset(%(measured)s::jsonb) AS given (gateway text, numbers double precision[])
 WHERE EXISTS (SELECT FROM {schema}.gateway_limits AS known WHERE known.gateway = given.gateway)
 ORDER BY given.gateway
