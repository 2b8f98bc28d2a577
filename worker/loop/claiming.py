"""The second step: claiming a job, by a statement of its own or by the commit that completes the job before."""

from __future__ import annotations

from convertq.queue.claim import Claim, NextClaim
from convertq.queue.database.connection import ANSWER_TIMEOUT_SECONDS
from convertq.queue.errors import one_line
from convertq.queue.job_events import JobClaimed, JobEvents
from convertq.queue.log.lines import Log
from convertq.queue.route_cursor import RouteCursor
from convertq.queue.store.protocol import Store
from convertq.worker.loop.batch_size import DEEP_QUEUE_JOBS
from convertq.worker.loop.worker_slot import WorkerSlot
from convertq.worker.supervisor.wake_up import WakeUp

STORAGE = "storage: "  # how the reason of object storage begins


class Claiming:
    def __init__(self, slot: WorkerSlot, store: Store, wake_up: WakeUp, log: Log, events: JobEvents) -> None:
        self._slot, self._store, self._wake_up, self._log, self._events = slot, store, wake_up, log, events
        self._logged_reason = ""  # why this worker does not claim

    def claim(self, cursor: RouteCursor, *, is_woken: bool) -> Claim | None:
        """None means that this host must not claim, because of its disk."""
        reason = self._store.reason_to_pause()
        self._slot.is_held_by_disk = bool(reason)
        if reason:
            self._slot.table.held_reason = one_line(reason)
            self._log_held(reason)
            cursor.release_slot()
            return None
        self._log.server, self._log.worker = self._slot.server_id, self._slot.holder
        cursor.database.connection.answer_timeout_seconds = ANSWER_TIMEOUT_SECONDS
        claim = cursor.claim_job(self._slot.server_id, self._slot.holder, known=is_woken)
        breaker = claim.state.breaker
        paused = "the gateway is paused" if claim.state.gateway_is_paused else ""
        self._log_held(paused or ("" if breaker == "closed" else "the breaker is open"), breaker=breaker)
        return claim

    def next_claim(self, cursor: RouteCursor, wanted: int) -> NextClaim | None:
        """The claim that a completion may take along; None while this host must not claim."""
        if self._store.reason_to_pause():
            return None
        chosen = cursor.next_cursor(self._slot.holder)
        if chosen is None:
            return None
        return NextClaim(chosen, self._slot.server_id, self._slot.holder, wanted, count_up_to=DEEP_QUEUE_JOBS)

    def announce(self, claim: Claim) -> None:
        """Emits the events, and wakes another worker if there are more jobs: one of this host if possible."""
        for job in claim.jobs:
            self._events.emit(JobClaimed(job, claim.state.breaker))
        if claim.jobs and claim.state.left_over:
            self._wake_up.post()
            if not self._slot.table.has_idle_worker:
                self._slot.table.request_other_hosts()

    def _log_held(self, reason: str, **fields: str) -> None:
        """Logs once when the worker stops claiming, and again when the reason changes."""
        if reason.startswith(STORAGE):
            reason, fields = STORAGE.rstrip(": "), {"message": reason.removeprefix(STORAGE)}
        if reason and reason != self._logged_reason:
            self._log("held", reason=reason, **fields)
        self._logged_reason = reason
