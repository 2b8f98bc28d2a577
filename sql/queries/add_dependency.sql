-- add_dependency: a job waits for another; a deferred trigger queues it at commit if all are complete already
-- Parameters: id, depends_on
-- Rows: (none)
INSERT INTO {schema}.job_dependencies (job_id, depends_on) VALUES (%(id)s, %(depends_on)s)
ON CONFLICT DO NOTHING
