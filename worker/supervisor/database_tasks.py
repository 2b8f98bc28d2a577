"""What the supervisor does in the database: registration, heartbeat, recovery and notifications, each when it is due.

Every call is bounded in time and survives a database that is down: the supervisor's loop never depends on it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from convertq.queue.backoff import Backoff
from convertq.queue.config import Config
from convertq.queue.counters import BATCH_EVENTS, aggregate_counters
from convertq.queue.database.connection import application_name
from convertq.queue.database.database import Database
from convertq.queue.database.errors import DATABASE_ERRORS, SchemaError
from convertq.queue.database.reconnecting import RETRY_PAUSE_MAX_SECONDS, ReconnectingDatabase
from convertq.queue.errors import one_line
from convertq.queue.event_partitions import make_event_partitions
from convertq.queue.fair_share import FairShare
from convertq.queue.log.lines import Log
from convertq.queue.routing import Routing
from convertq.worker.job_listeners import job_events
from convertq.worker.supervisor.held_report import HeldReport
from convertq.worker.supervisor.limit_upkeep import LimitUpkeep
from convertq.worker.supervisor.queue_upkeep import QueueUpkeep
from convertq.worker.supervisor.recovery import Recovery
from convertq.worker.supervisor.registration import ServerRegistration
from convertq.worker.supervisor.status_table import WorkerStatusTable
from convertq.worker.supervisor.waiting_place import WaitingPlace
from convertq.worker.supervisor.wake_up import WakeUp
from tenacity import wait_exponential

#: The pause before the next heartbeat when more counters are left than one aggregation takes.
AGGREGATE_AGAIN_AFTER_SECONDS = 1.0
SHOW_SIZE_AFTER_SECONDS = 1.0
#: How the name of the channel of cancels ends (cancel_channel in sql/migrations); all others end with a number.
CANCEL_CHANNEL_END = "_cancel"


class DatabaseTasks:
    def __init__(
        self, config: Config, status_table: WorkerStatusTable, wake: WakeUp, log: Log, notify_alive: Callable[[], None]
    ) -> None:
        self._config, self._status_table, self._wake = config, status_table, wake
        self._notify_alive = notify_alive  # called between steps: each is bounded in time, together they may take long
        self._registration = ServerRegistration(config, status_table, log)
        self._recovery = Recovery(config, job_events(log), notify_alive)
        self._waiting, self._routing = WaitingPlace(config, status_table, wake), Routing()
        self._held_report, self._upkeep = HeldReport(status_table), self._make_upkeep(log)
        self._limits = LimitUpkeep(status_table)
        self._database = ReconnectingDatabase(
            config.direct_database, log, lambda: application_name(f"{status_table.server_id}/supervisor"),
            claims=True,  # it reads the index of the claim too
        )  # fmt: skip
        self._backoff = Backoff(wait_exponential(multiplier=0.2, max=RETRY_PAUSE_MAX_SECONDS))
        self._retry_at = self._heartbeat_at = 0.0
        self._is_draining = False
        self.state = "waiting for the database"  # a few words for the operator, as of the last heartbeat

    def _make_upkeep(self, log: Log) -> QueueUpkeep:
        return QueueUpkeep(self._config, job_events(log), FairShare(self._status_table.scans_by_route))

    @property
    def is_registered(self) -> bool:
        return self._registration.is_registered

    def keep_up(self) -> None:
        """Connects, registers, sends heartbeats and recovers when each is due."""
        now = time.monotonic()
        if now < self._retry_at:
            return
        try:
            database = self._open()
            if not self.is_registered:
                self._register(database)
            if now >= self._heartbeat_at:
                self._send_heartbeat(database)
            self._recovery.keep_up(database)
            self._held_report.keep_up(database)
            self._upkeep.keep_up(database)
            self._limits.keep_up(database)
            self._database.mark_working()
            if not self._is_draining:
                self._waiting.keep_up(database)
            self._backoff.reset()
        except DATABASE_ERRORS as error:
            self._handle_error(error)

    def _open(self) -> Database:
        was_open = self._database.current is not None
        database = self._database.open()
        if not was_open:
            self._waiting.reset()
            database.connection.add_notify_handler(lambda notify: self._handle(notify.channel, notify.payload))
            self._listen_for_cancels(database)
            self._notify_alive()
            self._wake.post()  # for jobs that were queued while this host was not notified
            self._recovery.schedule_orphan_scan()
        return database

    def _handle_error(self, error: BaseException) -> None:
        self._database.drop(error)
        self._waiting.reset()
        self.state = one_line(str(error)) if isinstance(error, SchemaError) else "waiting for the database"
        self._retry_at = time.monotonic() + self._backoff.next_pause_seconds()
        self._heartbeat_at = 0.0  # the next connection has to prove that it can write

    def _register(self, database: Database) -> None:
        self._registration.register(database)
        self._routing.keep_up(database)
        self._notify_alive()
        self._recovery.recover_after_registration(database)
        self._heartbeat_at = 0.0  # the first heartbeat follows at once and returns the breaker's state

    def _send_heartbeat(self, database: Database) -> None:
        self._heartbeat_at = time.monotonic() + self._config.worker_heartbeat_sec
        breaker = self._registration.beat(database)
        self._notify_alive()
        if breaker is None:
            # Another supervisor has reclaimed this server's jobs, so its id must not be used any more.
            self._registration.choose_new_id()
            self._register(database)
        else:
            self.state = f"breaker {breaker}".replace("_", "-")
        self._routing.keep_up(database)
        if aggregate_counters(database) >= BATCH_EVENTS:
            self._heartbeat_at = min(self._heartbeat_at, time.monotonic() + AGGREGATE_AGAIN_AFTER_SECONDS)
        make_event_partitions(database)

    # -- notifications --

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Readable when a notification has arrived, or when a worker wakes up the supervisor."""
        woken = self._status_table.supervisor_wake_up.descriptor
        return (self._database.current.connection.fileno(), woken) if self._database.current else (woken,)

    @property
    def next_at(self) -> float:
        """When `keep_up` has something to do between two heartbeats, by the monotonic clock."""
        return self._waiting.next_at if self._database.current and not self._is_draining else float("inf")

    def read_notifications(self) -> None:
        """Reads what has arrived, without waiting for more. Notifications first: a job waits for them."""
        if self._database.current is not None:
            try:
                self._read_from(self._database.current)
            except DATABASE_ERRORS as error:
                self._handle_error(error)
        self._status_table.supervisor_wake_up.take()

    def _read_from(self, database: Database) -> None:
        pgconn = database.connection.pgconn
        pgconn.consume_input()
        while notify := pgconn.notifies():
            self._handle(notify.relname.decode(), notify.extra.decode())

    def _handle(self, channel: str, payload: str) -> None:
        """Sends no statement: it may be called while a statement runs."""
        if channel.endswith(CANCEL_CHANNEL_END):
            self._status_table.count_cancel(payload)
        else:
            self._waiting.handle_notification()

    def _listen_for_cancels(self, database: Database) -> None:
        """What was cancelled before this has notified nobody, so every worker checks its job once. Through a pooler
        there is no LISTEN: a worker learns of a cancel at its next report or extension."""
        if not database.connection.is_pooled:
            database.run("listen_for_cancels")
        self._status_table.count_possible_cancels()

    # -- for its workers, and at the end --

    def show_pool_size(self, workers: int) -> None:
        """A change is in the server's row within a second or so, also when a pool grows step by step."""
        if workers != self._registration.concurrency:
            self._registration.concurrency = workers
            self._heartbeat_at = min(self._heartbeat_at, time.monotonic() + SHOW_SIZE_AFTER_SECONDS)

    def has_claimable_job(self) -> bool:
        if time.monotonic() < self._retry_at or not self.is_registered:
            return False
        try:
            return self._waiting.has_claimable_job(self._open())
        except DATABASE_ERRORS as error:
            self._handle_error(error)
            return False

    def requeue_jobs_of(self, slot: int, counted: bool, reason: str) -> None:
        """Requeues what a dead worker leased. While the database is down, the next worker in the slot does it instead:
        a database that has just failed is not tried for each of many workers that died together."""
        self._notify_alive()
        if time.monotonic() < self._retry_at:
            return
        holder, begun = f"{self._status_table.server_id}/{slot}", self._status_table.read_begun(slot)
        try:
            self._recovery.requeue_worker_jobs(self._open(), holder, begun, counted=counted, reason=reason)
        except DATABASE_ERRORS as error:
            self._handle_error(error)

    def release_slots_of(self, slot: int) -> None:
        """A worker has ended, and its connections with it. A worker that ended by itself has released its slot."""
        if not self._routing.has_limits or time.monotonic() < self._retry_at:
            return
        try:
            self._open().run("release_slots", holder=f"{self._status_table.server_id}/{slot}")
        except DATABASE_ERRORS as error:
            self._handle_error(error)

    def drain(self) -> None:
        self._is_draining = True
        self._try_if_registered(self._registration.drain)
        if self._database.current is not None:
            self._try_if_registered(self._waiting.leave)

    def stop(self) -> None:
        self._try_if_registered(self._recovery.finish)
        self._try_if_registered(self._held_report.finish)
        self._try_if_registered(self._registration.stop)
        self._database.close()

    def _try_if_registered(self, task: Callable[[Database], None]) -> None:
        if not self.is_registered:
            return
        try:
            task(self._open())
        except DATABASE_ERRORS as error:
            self._handle_error(error)

    def detach_connection(self) -> None:
        """Called in a forked child, which must neither end the parent's session nor keep its socket open."""
        if self._database.current is not None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._database.current.connection.fileno())
            os.close(null)
