-- insert_pause: claims leave these jobs out from its commit on; jobs of an owner are moved by pause_jobs
-- Parameters: gateway, owner (null: all), by
-- Rows: one, or none when the same is paused already
INSERT INTO {schema}.pauses (gateway, owner, by) VALUES (%(gateway)s, %(owner)s, %(by)s)
ON CONFLICT ON CONSTRAINT one_pause_of_each_kind DO NOTHING
RETURNING id
