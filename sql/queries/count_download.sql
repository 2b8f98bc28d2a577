-- count_download: complete stays so; the download is counted and recorded
-- Parameters: id
-- Rows: one, or none when it is not complete
WITH counted AS (
    UPDATE {schema}.jobs
       SET download_count = download_count + 1, first_downloaded_at = coalesce(first_downloaded_at, now())
     WHERE id = %(id)s AND status = 'complete'
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type) SELECT id, 'downloaded' FROM counted
)
SELECT id FROM counted
