-- find_dependants: which of these jobs an unfinished job waits for
-- Parameters: ids
-- Rows: one per pair: id, dependant
SELECT dependency.depends_on AS id, dependant.id AS dependant
  FROM {schema}.job_dependencies AS dependency
    JOIN {schema}.jobs AS dependant ON dependant.id = dependency.job_id
 WHERE dependency.depends_on = ANY (%(ids)s::uuid[]) AND {schema}.is_active(dependant.status)
