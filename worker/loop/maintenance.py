"""The first step: what a worker does for the whole queue now and then, between its jobs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from uuid import UUID

from convertq.queue.database.errors import TRANSIENT_ERRORS
from convertq.queue.job_events import JobEvents, lost_job_requeued
from convertq.queue.job_queue import DependantPosition, JobQueue
from convertq.queue.lost_jobs import discard_temporary_files, reclaim_jobs
from convertq.queue.scan_budget import ScanBudget
from convertq.queue.store.protocol import Store
from convertq.worker.loop.worker_slot import WorkerSlot

#: For each worker. It costs nothing at a thousand jobs a second, and little where all workers are idle.
RECLAIM_EVERY_SECONDS = 10.0
#: How long dependants are released before this worker converts another job.
RELEASE_DEPENDANTS_SECONDS = 1.0


class QueueMaintenance:
    """Reclaims jobs of lost workers, requeues claims that this worker does not know of, and releases dependants."""

    def __init__(self, store: Store, events: JobEvents, scans: ScanBudget) -> None:
        self._store, self._events, self._scans = store, events, scans
        self._due_at = time.monotonic() + random.uniform(0, RECLAIM_EVERY_SECONDS)
        self._abandoned: list[UUID] = []  # jobs whose row may still name this worker
        self._dependants_after: DependantPosition | None = None  # where the next release goes on

    def expect_abandoned_jobs(self, ids: Sequence[UUID]) -> None:
        """The worker abandoned jobs that it had begun: they are requeued soon, and their attempts count."""
        self._abandoned += ids
        self._due_at = 0.0

    def requeue_own_jobs(self, queue: JobQueue, slot: WorkerSlot, *, is_first: bool) -> None:
        """Requeues, on a new connection, everything that this worker leases there.

        On the first connection of a process that is what a predecessor in the slot left when it died. Later it is a
        job that this process had to abandon, or one whose claim was committed and not answered: nothing was begun then,
        and the attempt does not count.
        """
        discard_temporary_files(queue, self._store, slot.holder)
        queue.database.run("release_slots", holder=slot.holder)
        reason = "worker died" if is_first else "connection lost during the claim"
        self._requeue_jobs(queue, slot.holder, reason, begun=slot.begun if is_first else None)
        slot.begun = []

    def requeue_ahead(self, queue: JobQueue, holder: str, reason: str, kept: Sequence[UUID]) -> None:
        """Requeues the jobs that were claimed ahead and not begun; `kept` are the others of this worker."""
        for row in queue.requeue_worker_jobs(holder, counted=False, reason=reason, kept=kept):
            self._events.emit(lost_job_requeued(row))

    def run_if_due(self, queue: JobQueue, holder: str, claimed: Sequence[UUID]) -> None:
        """`claimed` are the jobs that this worker has claimed and not begun."""
        now = time.monotonic()
        if now < self._due_at or not self._scans.allows_reclaim(now):
            return
        self._due_at = now + RECLAIM_EVERY_SECONDS
        try:
            self._reclaim_jobs(queue)
            # A connection that was given up may have committed a claim after this worker requeued its jobs.
            self._requeue_jobs(queue, holder, "the claim was lost", begun=None, kept=claimed)
            self._release_dependants(queue)
        except TRANSIENT_ERRORS:
            return  # the next time will do

    def _reclaim_jobs(self, queue: JobQueue) -> None:
        began = time.monotonic()
        reclaim_jobs(queue, self._store, self._events)
        self._scans.record_reclaim(began, time.monotonic())

    def _requeue_jobs(
        self, queue: JobQueue, holder: str, reason: str, *, begun: Sequence[UUID] | None, kept: Sequence[UUID] = ()
    ) -> None:
        """Requeues everything that this worker leases in the table, except the jobs that it keeps. Only attempts that
        had begun count; None: no attempt had."""
        if self._abandoned:
            reason, begun = "lease could not be kept", [*(begun or ()), *self._abandoned]
        counted = begun is not None
        for row in queue.requeue_worker_jobs(holder, counted=counted, begun=begun, reason=reason, kept=kept):
            self._events.emit(lost_job_requeued(row))
        self._abandoned = []

    def _release_dependants(self, queue: JobQueue) -> None:
        """A completed job may have very many dependants: they are released in slices, with a job in between."""
        pause_at = time.monotonic() + RELEASE_DEPENDANTS_SECONDS
        while True:
            self._dependants_after = queue.release_dependants(self._dependants_after)
            if self._dependants_after is None:
                return
            if time.monotonic() >= pause_at:
                self._due_at = 0.0
                return
