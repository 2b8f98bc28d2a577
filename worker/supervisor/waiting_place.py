"""The host's place among the hosts that wait for jobs, which the database notifies one at a time.

A host takes a place when one of its workers becomes idle, and keeps it while jobs arrive now and then. It leaves the
place only when a notification finds all workers busy, and that notification is passed on to another host.
"""

from __future__ import annotations

import time

from convertq.queue.claim import ClaimCursor
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.route_cursor import seconds_claimable
from convertq.worker.supervisor.status_table import WorkerStatusTable
from convertq.worker.supervisor.wake_up import WakeUp

PLACES = 64  # the same number as in start_waiting
#: After the place was taken, and after a notification, jobs may be committed that notify no host: their transactions
#: began before the place was visible, or while another one notified. The supervisor checks for them after these times.
CHECK_AFTER_SECONDS = (0.02, 0.2)
#: A job that has been claimable for less has just notified a host, whose worker is about to claim it.
BEING_CLAIMED_SECONDS = 0.015
TAKE_AT_MOST_EVERY_SECONDS = 0.1
RETRY_AFTER_SECONDS = 1.0  # where no place was free
WAKE_OTHER_HOSTS_AT_MOST_EVERY_SECONDS = 0.2
WAKE_AGAIN_AFTER_SECONDS = 5.0  # where no host waited: a host that begins to wait checks for jobs by itself
OTHER_HOSTS_AT_ONCE = 2  # each of them does the same, so that many hosts are woken quickly


class WaitingPlace:
    def __init__(self, config: Config, status_table: WorkerStatusTable, wake: WakeUp) -> None:
        self._config, self._status_table, self._wake = config, status_table, wake
        self._place: int | None = None
        self._checks: list[float] = []
        self._take_at = self._wake_others_at = 0.0
        self._must_pass_on = False

    def reset(self) -> None:
        """The session has ended, and its advisory locks with it."""
        self._clear()
        self._take_at = self._wake_others_at = 0.0

    def _clear(self) -> None:
        self._place, self._checks, self._must_pass_on = None, [], False
        self._status_table.is_waiting = False

    def handle_notification(self) -> None:
        """Sends no statement: it may be called while a statement runs."""
        self._wake_others_at = 0.0  # there may be more jobs than this host can take
        if self._status_table.has_idle_worker:
            self._wake.post()
            self._check_soon(*CHECK_AFTER_SECONDS)
        else:
            self._must_pass_on = True

    @property
    def next_at(self) -> float:
        """When `keep_up` has something to do, by the monotonic clock, if nothing happens before."""
        times = self._checks[:1]
        if self._status_table.are_other_hosts_requested:
            times.append(self._wake_others_at)
        if self._place is None and self._status_table.has_idle_worker:
            times.append(self._take_at)
        return min(times, default=float("inf"))

    def keep_up(self, database: Database) -> None:
        if database.connection.is_pooled:
            self._take_at = self._wake_others_at = float("inf")  # through a pooler the locks would go to another client
            self._status_table.is_waiting = True  # no worker needs to wake the supervisor for it
            return
        if self._must_pass_on:
            self.leave(database)
        if self._status_table.are_other_hosts_requested and time.monotonic() >= self._wake_others_at:
            self._wake_other_hosts(database)
        if self._place is None and time.monotonic() >= self._take_at and self._status_table.has_idle_worker:
            self._take(database)
        self._check(database)

    def _take(self, database: Database) -> None:
        self._place = database.run("start_waiting")[0]["place"]
        pause = RETRY_AFTER_SECONDS if self._place is None else TAKE_AT_MOST_EVERY_SECONDS
        self._take_at = time.monotonic() + pause
        self._status_table.is_waiting = self._place is not None
        for scans in self._status_table.scans_by_route.values():
            scans.set_place(self._place or PLACES)
        self._check_soon(0.0, *CHECK_AFTER_SECONDS)  # at once, too: what was committed before is visible by now

    def _check_soon(self, *after_seconds: float) -> None:
        now = time.monotonic()
        self._checks = [now + seconds for seconds in after_seconds]

    def _check(self, database: Database) -> None:
        now = time.monotonic()
        if not self._checks or now < self._checks[0]:
            return
        if self._wake.is_posted or self._status_table.has_claiming_worker:
            self._checks[0] = now + CHECK_AFTER_SECONDS[0]  # a claim is under way and may take the job
            return
        waited = None
        if self._status_table.has_idle_worker:
            waited = self._seconds_claimable(database)
        if waited is not None and waited < BEING_CLAIMED_SECONDS:
            self._checks[0] = now + CHECK_AFTER_SECONDS[0]
            return
        del self._checks[0]
        if waited is not None:
            self._wake.post()

    def has_claimable_job(self, database: Database) -> bool:
        return self._seconds_claimable(database) is not None

    def _seconds_claimable(self, database: Database) -> float | None:
        return seconds_claimable(database, self._cursors(database), self._status_table.server_id)

    def _cursors(self, database: Database) -> dict[str, ClaimCursor]:
        budgets = self._status_table.scans_by_route
        return {route: ClaimCursor(database, self._config, scans, route) for route, scans in budgets.items()}

    def _wake_other_hosts(self, database: Database) -> None:
        self._status_table.are_other_hosts_requested = False
        if self._status_table.has_idle_worker:
            return  # the queue has become empty meanwhile
        woken = database.run("wake_servers", at_most=OTHER_HOSTS_AT_ONCE)[0]["woken"]
        self._status_table.are_other_hosts_idle = bool(woken)
        pause = WAKE_OTHER_HOSTS_AT_MOST_EVERY_SECONDS if woken else WAKE_AGAIN_AFTER_SECONDS
        self._wake_others_at = time.monotonic() + pause

    def leave(self, database: Database) -> None:
        """A worker that becomes idle after this makes the supervisor take a place again."""
        place, is_notified = self._place, self._must_pass_on
        self._clear()
        if place is not None:
            database.run("stop_waiting", place=place)
        elif is_notified:
            database.run("wake_servers", at_most=1)
