"""Two stores, while files move from one to the other: new files go to the first, both are read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from uuid import UUID

from convertq.queue.doctor.finding import Finding
from convertq.queue.job import ClaimedJob
from convertq.queue.store.protocol import (
    JobId,
    OpenResult,
    OpenSource,
    PendingResult,
    PendingSource,
    Removed,
    Store,
    StoredFile,
)


class TwoPlaces:
    """A source is where its id is found, the first store first. A result is where its row says."""

    def __init__(self, first: Store, second: Store, starts: tuple[str, str]) -> None:
        """`starts` is how the locations of each begin. One may begin as the other: the longer one decides."""
        self._first, self._second = first, second
        self._by_start = sorted(zip(starts, (first, second), strict=True), key=lambda each: -len(each[0]))
        self.is_remote = first.is_remote or second.is_remote

    def _of(self, location: str | None) -> Store:
        found = (store for start, store in self._by_start if (location or "").startswith(start))
        return next(found, self._first)

    # -- the store as a whole: where new files go --

    def make_ready(self) -> None:
        self._first.make_ready()

    def require(self) -> None:
        self._first.require()
        self._second.require()

    def prepare_workers(self) -> None:
        self._first.prepare_workers()

    def reason_to_pause(self) -> str:
        return self._first.reason_to_pause()

    def is_working(self) -> bool:
        return self._first.is_working()

    @property
    def bytes_moved(self) -> int:
        return self._first.bytes_moved + self._second.bytes_moved

    def abort_transfers(self) -> None:
        self._first.abort_transfers()
        self._second.abort_transfers()

    def permit_transfers(self) -> None:
        self._first.permit_transfers()
        self._second.permit_transfers()

    def check_access(self) -> list[Finding]:
        second = self._second.check_access() if self._second.is_remote else []
        return [*self._first.check_access(), *second]

    def check_space(self) -> Finding:
        return self._first.check_space()

    # -- sources --

    def new_source(self, job_id: UUID) -> PendingSource:
        return self._first.new_source(job_id)

    def source_location(self, job_id: UUID) -> str:
        return self._first.source_location(job_id)

    def has_source(self, job_id: UUID) -> bool:
        return self._first.has_source(job_id) or self._second.has_source(job_id)

    def find_sources(self, ids: Sequence[UUID]) -> list[UUID]:
        found = set(self._first.find_sources(ids))
        found |= set(self._second.find_sources([job_id for job_id in ids if job_id not in found]))
        return [job_id for job_id in ids if job_id in found]

    def open_source(self, job_id: JobId) -> OpenSource:
        try:
            return self._first.open_source(job_id)
        except FileNotFoundError:
            return self._second.open_source(job_id)

    # -- results --

    def new_result(self, job: ClaimedJob) -> PendingResult:
        return self._first.new_result(job)

    def result_location(self, job_id: UUID, recorded: str) -> str:
        return self._of(recorded).result_location(job_id, recorded)

    def has_result(self, job_id: UUID, location: str | None) -> bool:
        return self._of(location).has_result(job_id, location)

    def open_result(self, job_id: UUID, location: str | None) -> OpenResult:
        return self._of(location).open_result(job_id, location)

    def sync_results(self) -> None:
        self._first.sync_results()

    def presign_result(self, job_id: UUID, location: str | None, name: str) -> str | None:
        return self._of(location).presign_result(job_id, location, name)

    def remove_result(self, job_id: UUID) -> None:
        self._first.remove_result(job_id)
        with contextlib.suppress(FileNotFoundError):
            self._second.remove_result(job_id)

    # -- temporary files: always those of this host --

    def discard_temporary_file(self, job_id: JobId, attempt: int, holder: str) -> None:
        self._first.discard_temporary_file(job_id, attempt, holder)

    def list_temporary_results(self) -> Iterator[StoredFile]:
        return self._first.list_temporary_results()

    def is_held_by(self, file: StoredFile, holder: str) -> bool:
        return self._first.is_held_by(file, holder)

    # -- retention --

    def list_sources(self) -> Iterator[StoredFile]:
        yield from self._first.list_sources()
        yield from self._second.list_sources()

    def list_results(self) -> Iterator[StoredFile]:
        yield from self._first.list_results()
        yield from self._second.list_results()

    def list_temporary_files(self) -> Iterator[StoredFile]:
        """Both stores list the temporary files of this host."""
        seen = set()
        for store in (self._first, self._second):
            for file in store.list_temporary_files():
                if file.location not in seen:
                    seen.add(file.location)
                    yield file

    def job_locations(self, job_id: UUID, attempt: int, holder: str | None) -> list[str]:
        both = [store.job_locations(job_id, attempt, holder) for store in (self._first, self._second)]
        return list(dict.fromkeys(location for each in both for location in each))

    def remove(self, locations: Sequence[str], *, dry_run: bool = False) -> list[Removed]:
        removed: dict[str, Removed] = {}
        for store in (self._first, self._second):
            its_own = [location for location in locations if self._of(location) is store]
            removed |= dict(zip(its_own, store.remove(its_own, dry_run=dry_run), strict=True))
        return [removed[location] for location in locations]
