"""Records in the log of the queue when this host stops claiming because of its disk or storage, and when it goes on."""

from __future__ import annotations

from convertq.queue.database.database import Database
from convertq.queue.queue_events import QueueEventType, record
from convertq.worker.supervisor.status_table import WorkerStatusTable


class HeldReport:
    """One event for the host, however many workers it has. An open breaker has events of its own."""

    def __init__(self, status_table: WorkerStatusTable) -> None:
        self._status_table = status_table
        self._is_held = False  # as it was recorded last

    def keep_up(self, database: Database) -> None:
        is_held = self._status_table.has_held_worker
        if is_held == self._is_held:
            return
        reason = self._status_table.held_reason if is_held else None
        self._record(database, QueueEventType.HELD if is_held else QueueEventType.RELEASED, reason)
        self._is_held = is_held

    def finish(self, database: Database) -> None:
        """Called when the workers have ended: a server that is gone does not hold anything."""
        if self._is_held:
            self._record(database, QueueEventType.RELEASED, "the server stopped")
            self._is_held = False

    def _record(self, database: Database, event: QueueEventType, reason: str | None) -> None:
        record(database, event, server=self._status_table.server_id, reason=reason)
