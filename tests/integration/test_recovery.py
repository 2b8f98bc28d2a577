"""What a supervisor still recovers when it stops soon after an outage."""

from __future__ import annotations

from convertq.queue.job_events import JobEvents
from convertq.worker.supervisor.recovery import Recovery

from tests.files import Files
from tests.jobs import HOLDER, Conn, claimed, config, insert_job, open_database


def test_a_supervisor_that_stops_after_an_outage_leaves_no_orphan_file(
    conn: Conn, database_url: str, files: Files
) -> None:
    """A worker was killed while its completion was being committed: no lease names its temporary file any more."""
    running, ended = claimed(conn), insert_job(conn)
    kept, orphan = (files.temporary_result(job_id, 1, HOLDER) for job_id in (running.id, ended))
    for path in (kept, orphan):
        path.touch()
    settings = config(UPLOADS_DIR=files.uploads, RESULTS_DIR=files.results)
    recovery = Recovery(settings, JobEvents(), notify_alive=lambda: None)
    with open_database(database_url) as database:
        recovery.finish(database)
        assert orphan.exists()  # without an outage there is nothing to scan for
        recovery.schedule_orphan_scan()
        recovery.finish(database)
    assert kept.exists()
    assert not orphan.exists()
