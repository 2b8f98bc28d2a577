"""Cancelling: an unfinished job ends at once, for every caller, also while a worker converts it.

One statement ends the lease with the job, so the fence refuses every later write of the worker. Nothing waits for the
worker: a notification makes it drop its call to the gateway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import psycopg
from convertq.queue.bulk import BATCH_JOBS, BulkProgress, in_batches
from convertq.queue.database.commit import commit
from convertq.queue.database.database import Database
from convertq.queue.jobs import get_statuses
from convertq.queue.queue_events import Operator, name_jobs, record_operator
from convertq.queue.status import ACTIVE, JobStatus
from convertq.queue.store.protocol import Store
from psycopg.rows import DictRow
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

#: The jobs of one transaction that removes what is left of results: see BATCH_JOBS in queue/removal.py.
REMOVAL_BATCH_JOBS = 200
DEADLOCK_TRIES = 5
#: Who cancelled a job, as its event says, where it was no operator.
BY_OWNER = "its owner"


class CancelVerdict(StrEnum):
    CANCELLED = "cancelled"
    CANCELLED_BEFORE = "cancelled_before"
    ENDED = "ended"  # it is complete or failed
    NO_SUCH_JOB = "no_such_job"


@dataclass(frozen=True)
class CancelledJob:
    """What became of one job; `status` is the one that it has now, and `cascade` counts its dependants."""

    job_id: UUID
    verdict: CancelVerdict
    status: str | None = None
    cascade: int = 0


class Cancelling:
    """Without an operator it is the owner who cancels; the event of every job says who it was. With `cascade`, jobs
    that wait for a cancelled job are cancelled too, and so are those that wait for them."""

    def __init__(
        self, database: Database, store: Store, operator: Operator | None = None, *, cascade: bool = False
    ) -> None:
        self._database, self._store, self._operator, self._cascade = database, store, operator, cascade

    def cancel(self, job_id: UUID) -> CancelledJob:
        ended = self._cancel_batch([job_id])
        row = get_statuses(self._database, [job_id]).get(job_id)
        cascade = sum(each["id"] != job_id for each in ended)
        if any(each["id"] == job_id for each in ended):
            return CancelledJob(job_id, CancelVerdict.CANCELLED, row["status"] if row else None, cascade)
        if row is None:
            return CancelledJob(job_id, CancelVerdict.NO_SUCH_JOB)
        before = row["status"] == JobStatus.CANCELLED
        verdict = CancelVerdict.CANCELLED_BEFORE if before else CancelVerdict.ENDED
        return CancelledJob(job_id, verdict, row["status"], cascade)

    def cancel_all(self, ids: Sequence[UUID], report: Callable[[BulkProgress], None] = lambda progress: None) -> None:
        """Each batch is a transaction of its own: what was reported stays when the rest is interrupted."""
        tried, skipped, ended = 0, 0, set[UUID]()
        for batch in in_batches(ids, BATCH_JOBS):
            ended.update(row["id"] for row in self._cancel_batch(batch))
            tried += len(batch)
            skipped += sum(job_id not in ended for job_id in batch)
            report(BulkProgress(len(ids), tried, len(ended), skipped))

    def preview(self, ids: Sequence[UUID]) -> list[UUID]:
        """The jobs that a cancel of these would end now, its cascade included."""
        if not self._cascade:
            return list(ids)
        waiting = (row["id"] for batch in in_batches(ids, BATCH_JOBS) for row in self._list_cascade(batch))
        return list(dict.fromkeys([*ids, *waiting]))

    def _cancel_batch(self, ids: Sequence[UUID]) -> list[DictRow]:
        """Two cascades may lock the same jobs in another order: PostgreSQL ends one, which is tried again."""
        retrying = Retrying(
            retry=retry_if_exception_type(psycopg.errors.DeadlockDetected), reraise=True,
            stop=stop_after_attempt(DEADLOCK_TRIES), wait=wait_random(0, 0.1),
        )  # fmt: skip
        ended = retrying(self._cancel_in_transaction, ids)
        discard_attempts(self._database, self._store, ended)
        return ended

    def _cancel_in_transaction(self, ids: Sequence[UUID]) -> list[DictRow]:
        return commit(self._database, lambda: self._cancel_jobs(ids), self._are_cancelled)

    def _cancel_jobs(self, ids: Sequence[UUID]) -> list[DictRow]:
        by = self._operator.name if self._operator else BY_OWNER
        ended = self._database.run("cancel_jobs", ids=list(ids), by=by)
        if self._cascade:
            rows = get_statuses(self._database, ids)
            cancelled = [job_id for job_id, row in rows.items() if row["status"] == JobStatus.CANCELLED]
            waiting = [row["id"] for row in self._list_cascade(cancelled)]
            ended += self._database.run("cancel_jobs", ids=waiting, by=by)
        if ended and self._operator:
            record_operator(self._database, self._operator, "cancel", **name_jobs(row["id"] for row in ended))
        return ended

    def _are_cancelled(self, ended: Sequence[DictRow]) -> bool:
        """One transaction cancels all of them, so that another one may since have started over some, and not all."""
        rows = get_statuses(self._database, [row["id"] for row in ended])
        return not ended or any(row["status"] == JobStatus.CANCELLED for row in rows.values())

    def _list_cascade(self, ids: Sequence[UUID]) -> list[DictRow]:
        return self._database.run("list_cascade", ids=list(ids))


def find_active_jobs(
    database: Database, *, owner: str | None = None, mapping: str | None = None, status: str | None = None
) -> list[UUID]:
    """The unfinished jobs that match, oldest first; `status` is one of an unfinished job."""
    statuses = [status] if status else list(ACTIVE)
    rows = database.run("find_active_jobs", statuses=statuses, owner=owner, mapping=mapping)
    return [row["id"] for row in rows]


def discard_attempts(database: Database, store: Store, ended: Sequence[DictRow]) -> None:
    """Removes what the attempts of cancelled jobs have left: a worker that died may have removed nothing."""
    for row in ended:
        if row["holder"] is not None:
            store.discard_temporary_file(row["id"], row["attempt"], row["holder"])
    discard_results(database, store, [row["id"] for row in ended if row["was_started"]])


def discard_results(database: Database, store: Store, ids: Sequence[UUID]) -> None:
    """Removes published files and objects that no row names: their attempt was ended before its commit, or its commit
    was lost. What cannot be removed now is an orphan, and `cleanup` removes it."""
    for batch in in_batches(ids, REMOVAL_BATCH_JOBS):
        with database.transaction():
            for row in database.run("lock_cancelled_jobs", ids=batch):
                with contextlib.suppress(OSError):
                    store.remove_result(row["id"])
