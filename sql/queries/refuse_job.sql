-- refuse_job: -> failed, a file that was refused; nothing is stored of it
-- Parameters: id, owner, original_filename, bytes, sha256, mapping, pretty, priority, error_code,
--   error_message
-- Rows: one, or none when this owner has the same content already
INSERT INTO {schema}.jobs (id, owner_session_id, original_filename, bytes, sha256, mapping, pretty, priority,
                           status, failed_at, error_code, error_message)
VALUES (%(id)s, %(owner)s, %(original_filename)s, %(bytes)s, %(sha256)s, %(mapping)s, %(pretty)s,
        %(priority)s,
        'failed', now(), %(error_code)s, %(error_message)s)
ON CONFLICT ON CONSTRAINT one_job_per_owner_and_content DO NOTHING
RETURNING id
