"""Jobs whose worker is lost: they go back to the queue, or fail if that was their last attempt."""

from __future__ import annotations

from datetime import datetime

from convertq.queue.job_events import JobEvents, lost_job_reclaimed
from convertq.queue.job_queue import JobQueue
from convertq.queue.store.protocol import Store
from psycopg.rows import DictRow


def reclaim_jobs(
    queue: JobQueue, store: Store, events: JobEvents, listening_since: datetime | None = None
) -> list[DictRow]:
    """One pass over the jobs whose lease has expired or whose server is dead; their temporary files are removed."""
    rows = queue.reclaim_jobs(listening_since)
    for row in rows:
        store.discard_temporary_file(row["id"], row["attempt"], row["holder"])
        events.emit(lost_job_reclaimed(row))
    return rows


def discard_temporary_files(queue: JobQueue, store: Store, holder: str) -> None:
    """Removes the temporary files of a worker that has ended, before its jobs are requeued.

    Afterwards would be too late: if that commit is not answered, no process knows which attempts they belong to.
    """
    for row in queue.find_leased_jobs(holder):
        store.discard_temporary_file(row["id"], row["attempt"], holder)
