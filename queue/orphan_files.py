"""Orphan temporary files: no running attempt writes to them any more."""

from __future__ import annotations

from convertq.queue.database.database import Database
from convertq.queue.store.protocol import Store, StoredFile
from psycopg.rows import DictRow


def discard_orphan_files(database: Database, store: Store) -> None:
    """Removes the temporary files of attempts that no worker runs any more."""
    # Listed before the table is read: an attempt that is listed and alive is in the table by then.
    files = list(store.list_temporary_results())
    running = {row["id"]: row for row in database.run("find_running_attempts", ids=[file.job_id for file in files])}
    store.remove([file.location for file in files if not _is_written(file, running.get(file.job_id), store)])


def _is_written(file: StoredFile, attempt: DictRow | None, store: Store) -> bool:
    if attempt is None:
        return False
    return bool(attempt["attempt"] == file.attempt and store.is_held_by(file, attempt["holder"]))
