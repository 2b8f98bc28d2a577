"""Forgetting jobs: their rows, events and files are removed at once, also while a worker converts them.

Removing a row ends the attempt: every later write of its worker names the lease, which was removed with the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from graphlib import TopologicalSorter
from uuid import UUID

from convertq.queue.bulk import in_batches
from convertq.queue.database.database import Database
from convertq.queue.queue_events import Operator, record_operator
from convertq.queue.removal import BATCH_JOBS, JobRemoval, find_needed_jobs
from convertq.queue.store.protocol import Store
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_random

LOCK_WAIT_SECONDS = 20.0  # longer than PostgreSQL lets a transaction of a worker be idle
MAX_PAUSE_SECONDS = 0.2
IDS_PER_STATEMENT = 10_000


class Verdict(StrEnum):
    FORGOTTEN = "forgotten"
    WAITED_FOR = "waited for"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True)
class Forgotten:
    """What became of one job; `reason` says why it was not forgotten."""

    job_id: UUID
    verdict: Verdict
    reason: str | None = None
    bytes: int = 0


class Forgetting:
    def __init__(
        self, database: Database, store: Store, operator: Operator | None = None, *, dry_run: bool = False
    ) -> None:
        self._database, self._operator, self._dry_run = database, operator, dry_run
        self._removal = JobRemoval(database, store, dry_run=dry_run)

    def run(self, ids: Iterable[UUID]) -> Iterator[Forgotten]:
        """Dependants are removed before the job that they wait for: a crash leaves none that waits for nothing."""
        wanted = list(dict.fromkeys(ids))
        pairs = self._find_dependants(wanted)
        kept = find_needed_jobs(pairs, {dependant for _, dependant in pairs} - set(wanted))
        yield from (waited_for(job_id, dependant) for job_id, dependant in kept.items())
        for batch in in_batches(dependants_first(wanted, pairs, kept), BATCH_JOBS):
            yield from self._forget(batch)

    def _find_dependants(self, ids: Sequence[UUID]) -> list[tuple[UUID, UUID]]:
        """Pairs: a job, and an unfinished job that waits for it."""
        batches = in_batches(ids, IDS_PER_STATEMENT)
        rows = (row for batch in batches for row in self._database.run("find_dependants", ids=batch))
        return [(row["id"], row["dependant"]) for row in rows]

    def _forget(self, batch: Sequence[UUID]) -> list[Forgotten]:
        """A row that another session has locked is tried again: a completion of that job may be under way."""
        left, done = set(batch), list[Forgotten]()
        retrying = Retrying(
            retry=retry_if_result(bool),
            wait=wait_random(0, MAX_PAUSE_SECONDS),
            stop=stop_after_delay(LOCK_WAIT_SECONDS),
        )
        try:
            retrying(self._forget_unlocked, left, done)
        except RetryError:
            done += [Forgotten(job_id, Verdict.FAILED, "another session holds its row; try again") for job_id in left]
        return done

    def _forget_unlocked(self, left: set[UUID], done: list[Forgotten]) -> set[UUID]:
        """Moves from `left` to `done` those that could be locked, with their dependants; returns `left`."""
        with self._database.transaction():
            rows = self._database.run("lock_jobs", ids=list(left))
            locked = {row["id"] for row in rows}
            pairs = self._find_dependants(list(locked))
            kept = find_needed_jobs(pairs, {dependant for _, dependant in pairs} - left)
            later = find_needed_jobs(pairs, left - locked)
            removed = self._removal.remove([row for row in rows if row["id"] not in kept | later])
            self._record(sum(not outcome.error for outcome in removed.values()))
        ended = [waited_for(job_id, dependant) for job_id, dependant in kept.items() if job_id not in later]
        for job_id, outcome in removed.items():
            verdict = Verdict.FAILED if outcome.error else Verdict.FORGOTTEN
            ended.append(Forgotten(job_id, verdict, outcome.error, outcome.bytes))
        existing = {row["id"] for row in self._database.run("get_statuses", ids=list(left - locked))}
        ended += [Forgotten(job_id, Verdict.UNKNOWN, "no such job") for job_id in left - locked - existing]
        done += ended
        left -= {each.job_id for each in ended}
        return left

    def _record(self, jobs: int) -> None:
        """Names neither the jobs nor their owner, because nothing of them is to be kept."""
        if jobs and self._operator and not self._dry_run:
            record_operator(self._database, self._operator, "forget", jobs=jobs)


def waited_for(job_id: UUID, dependant: UUID) -> Forgotten:
    return Forgotten(job_id, Verdict.WAITED_FOR, f"job {dependant} waits for it; forget that one too")


def dependants_first(wanted: Sequence[UUID], pairs: Sequence[tuple[UUID, UUID]], kept: dict[UUID, UUID]) -> list[UUID]:
    """The jobs that are not kept, each after its dependants."""
    order: TopologicalSorter[UUID] = TopologicalSorter(dict.fromkeys(wanted, ()))
    for job_id, dependant in pairs:
        order.add(job_id, dependant)
    removable = set(wanted) - kept.keys()
    return [job_id for job_id in order.static_order() if job_id in removable]
