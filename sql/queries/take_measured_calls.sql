-- take_measured_calls: removes what all hosts have measured of a gateway since the last decision
-- The caller has locked the limit, so every measurement is used by one decision.
-- Parameters: gateway
-- Rows: one per report: numbers
DELETE FROM {schema}.measured_calls WHERE gateway = %(gateway)s RETURNING numbers
