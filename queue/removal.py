"""Removing a job: its files first, then its rows, in the transaction that has locked the job.

A file is removed while its job's row is locked, and the row is deleted or updated before the lock ends. A crash in
between leaves a row that names a missing file: the next removal of the job finds no file, and removes the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from convertq.queue.database.database import Database
from convertq.queue.store.protocol import Removed, Store
from psycopg.rows import DictRow

#: The jobs of one transaction, which may be idle for 15 s: that leaves 75 ms for each file on a slow share.
BATCH_JOBS = 200


class JobRemoval:
    def __init__(self, database: Database, store: Store, *, dry_run: bool) -> None:
        self._database, self._store, self._dry_run = database, store, dry_run

    def remove(self, rows: list[DictRow]) -> dict[UUID, Removed]:
        """The caller has locked the rows. A job whose files cannot be removed stays, as do its dependencies."""
        removed = self._remove_files(rows)
        self._keep_dependencies(removed)
        gone = [job_id for job_id, outcome in removed.items() if not outcome.error]
        if gone and not self._dry_run:
            self._database.run("allow_cleanup")
            self._database.run("lock_counters")
            self._database.run("delete_jobs", ids=gone)
        return removed

    def _remove_files(self, rows: list[DictRow]) -> dict[UUID, Removed]:
        locations = {row["id"]: self._store.job_locations(row["id"], row["attempt"], row["holder"]) for row in rows}
        every = [location for listed in locations.values() for location in listed]
        outcomes = dict(zip(every, self._store.remove(every, dry_run=self._dry_run), strict=True))
        return {job_id: _together({name: outcomes[name] for name in listed}) for job_id, listed in locations.items()}

    def _keep_dependencies(self, removed: dict[UUID, Removed]) -> None:
        """An unfinished job that stays needs the jobs that it waits for."""
        if not any(outcome.error for outcome in removed.values()):
            return
        pairs = [(row["id"], row["dependant"]) for row in self._database.run("find_dependants", ids=list(removed))]
        staying = {job_id for job_id, outcome in removed.items() if outcome.error}
        for job_id, dependant in find_needed_jobs(pairs, staying).items():
            removed[job_id] = Removed(error=f"job {dependant}, which waits for it, stays")


def _together(outcomes: dict[str, Removed]) -> Removed:
    """The files of one job: their bytes, and the first error."""
    error = next((f"{location}: {each.error}" for location, each in outcomes.items() if each.error), None)
    return Removed(sum(each.bytes for each in outcomes.values()), error)


def find_needed_jobs(pairs: Iterable[tuple[UUID, UUID]], staying: set[UUID]) -> dict[UUID, UUID]:
    """From pairs (job, dependant), the jobs that must stay because others stay, each with the job that needs it."""
    found: dict[UUID, UUID] = {}
    left = list(pairs)
    while more := {job_id: dependant for job_id, dependant in left if dependant in staying | found.keys()}:
        left = [pair for pair in left if pair[0] not in more]
        found |= more
    return found
