-- submit_job: -> uploaded or queued; the events and the wake-up are written by the table's triggers
-- convertq.brings_no_event spares the trigger the search for an event that this statement could have brought.
-- A job that must not begin yet waits as a retry does: guard_job sets its retry_after.
-- Parameters: id, owner, original_filename, bytes, sha256, mapping, pretty, priority, status, upload_path,
--   not_before, deadline
-- Rows: one, or none when this owner has the same content already
INSERT INTO {schema}.jobs (id, owner_session_id, original_filename, bytes, sha256, mapping, pretty, priority,
                           status, upload_path, not_before, deadline)
VALUES (set_config('convertq.brings_no_event', %(id)s::uuid::text, true)::uuid, %(owner)s,
        %(original_filename)s, %(bytes)s, %(sha256)s, %(mapping)s, %(pretty)s, %(priority)s,
        %(status)s, %(upload_path)s, %(not_before)s, %(deadline)s)
ON CONFLICT ON CONSTRAINT one_job_per_owner_and_content DO NOTHING
RETURNING id
