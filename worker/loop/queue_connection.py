"""A worker's connection to the queue, which is opened again after every outage."""

from __future__ import annotations

from collections.abc import Callable

from convertq.queue.backoff import Backoff
from convertq.queue.config import Config
from convertq.queue.database.connection import application_name
from convertq.queue.database.database import Database
from convertq.queue.database.reconnecting import RETRY_PAUSE_MAX_SECONDS, ReconnectingDatabase
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.route_cursor import RouteCursor
from convertq.worker.loop.maintenance import QueueMaintenance
from convertq.worker.loop.stopping import Stopping
from convertq.worker.loop.worker_slot import WorkerSlot
from tenacity import wait_exponential

FIRST_PAUSE_SECONDS = 0.1


class QueueConnection:
    """`queue` and `cursor` are those of the connection that `open` has opened last."""

    queue: JobQueue
    cursor: RouteCursor
    _opened: Database | None = None

    def __init__(
        self, config: Config, slot: WorkerSlot, stopping: Stopping, maintenance: QueueMaintenance, log: Log,
        make_cursor: Callable[[Database], RouteCursor],
    ) -> None:  # fmt: skip
        self._make_cursor = make_cursor
        self._config, self._slot, self._stopping, self._maintenance = config, slot, stopping, maintenance
        self.database = ReconnectingDatabase(
            config.database, log, lambda: application_name(slot.holder), claims=True
        )  # fmt: skip
        self._backoff = Backoff(wait_exponential(multiplier=FIRST_PAUSE_SECONDS, max=RETRY_PAUSE_MAX_SECONDS))

    @property
    def is_open(self) -> bool:
        """False also while the monitor of an attempt or a settlement has opened another connection meanwhile: `open`
        has to requeue first what the lost connection may have claimed."""
        return self._opened is not None and self.database.current is self._opened

    def open(self) -> bool:
        """Retries until the database is there, and requeues what this worker still leases there. False: it is time to
        stop. Raises one of DATABASE_ERRORS."""
        self._slot.show_disconnected()
        database = self.database.open_with_retries(self._stopping.pause, give_up=lambda: bool(self._stopping))
        if database is None:
            return False
        queue = JobQueue(database, self._config)
        self._maintenance.requeue_own_jobs(queue, self._slot, is_first=self._opened is None)
        self._opened, self.queue = database, queue
        self.cursor = self._make_cursor(database)
        self._slot.show_ready()
        return True

    def mark_working(self) -> None:
        self.database.mark_working()
        self._backoff.reset()

    def drop(self, error: BaseException) -> None:
        """Closes the connection and pauses: where connecting works but writing does not (no rights, read-only), only
        this pause keeps the worker from spinning."""
        self.database.drop(error)
        self._stopping.pause(self._backoff.next_pause_seconds())

    def close(self) -> None:
        self.database.close()
