"""The store in two directories. Every path is made from an id alone: no row and no request can name another file."""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import UUID

from convertq.queue.config import ConfigError
from convertq.queue.doctor.finding import Finding
from convertq.queue.job import ClaimedJob
from convertq.queue.store.directory_checks import check_directory, check_space
from convertq.queue.store.directory_listing import RESULT, SOURCE, TEMPORARY, list_directory
from convertq.queue.store.directory_result import DirectoryResult
from convertq.queue.store.directory_source import DirectorySource
from convertq.queue.store.protocol import JobId, OpenResult, OpenSource, Removed, StoredFile
from convertq.queue.store.regular_file import discard, is_regular, open_regular, sync_directory

#: An unlink waits for the disk or the share, and the rows of a batch stay locked until its last one.
REMOVAL_THREADS = 8
#: Nothing is there, or something that no worker puts there: a symlink, a pipe.
NOT_A_RESULT = frozenset({errno.ENOENT, errno.ELOOP, errno.EINVAL})


class DirectoryStore:
    is_remote = False

    def __init__(self, uploads: Path, results: Path, min_free_mb: int = 0) -> None:
        self.uploads, self.results, self._min_free_mb = uploads, results, min_free_mb
        self._uploads, self._results = str(uploads), str(results)

    # -- the store as a whole --

    def make_ready(self) -> None:
        """A directory that cannot be made is a wrong setting, so that the process ends instead of trying again."""
        for variable, directory in (("UPLOADS_DIR", self.uploads), ("RESULTS_DIR", self.results)):
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                problem = f"{variable} = {str(directory)!r}: the directory cannot be made: {_reason(error)}"
                raise ConfigError([problem]) from None

    def require(self) -> None:
        for variable, directory in (("UPLOADS_DIR", self.uploads), ("RESULTS_DIR", self.results)):
            if not directory.is_dir():
                remedy = "is its share mounted? `convertq doctor --fix` makes it where it is new"
                raise FileNotFoundError(errno.ENOENT, f"{variable}: {directory} is not there: {remedy}")

    def reason_to_pause(self) -> str:
        """Two system calls. What cannot be written here stays queued, for another host or for later."""
        if not os.path.isdir(self._uploads):  # noqa: PTH112
            return "the upload directory is not there"
        try:
            space = os.statvfs(self._results)
        except OSError as error:
            return f"the result directory is not usable: {(error.strerror or '').lower()}"
        if space.f_flag & os.ST_RDONLY:
            return "the result directory is read-only"
        if space.f_bavail * space.f_frsize < self._min_free_mb * 1024 * 1024:
            return f"less than {self._min_free_mb} MB free in the result directory"
        return ""

    def prepare_workers(self) -> None:
        """`reason_to_pause` examines the directories before each claim."""

    def is_working(self) -> bool:
        return True

    @property
    def bytes_moved(self) -> int:
        return 0

    def abort_transfers(self) -> None:
        """A system call on a file cannot be ended from outside."""

    def permit_transfers(self) -> None:
        """Nothing was aborted."""

    def check_access(self) -> list[Finding]:
        named = {"UPLOADS_DIR": self.uploads, "RESULTS_DIR": self.results}
        return [check_directory(variable, path) for variable, path in named.items()]

    def check_space(self) -> Finding:
        return check_space(self.results, self._min_free_mb)

    # -- sources --

    def new_source(self, job_id: UUID) -> DirectorySource:
        return DirectorySource(self._uploads, job_id)

    def source_location(self, job_id: JobId) -> str:
        return f"{self._uploads}/{job_id}.pdf"

    def has_source(self, job_id: UUID) -> bool:
        return is_regular(self.source_location(job_id))

    def find_sources(self, ids: Sequence[UUID]) -> list[UUID]:
        return [job_id for job_id in ids if self.has_source(job_id)]

    def open_source(self, job_id: JobId) -> OpenSource:
        file, status = open_regular(self.source_location(job_id))
        return OpenSource(file, status.st_size)

    # -- results: a path follows from the id, whatever a foreign writer has put into the row --

    def new_result(self, job: ClaimedJob) -> DirectoryResult:
        temporary = self.temporary_location(job.name, job.attempt, job.holder)
        return DirectoryResult(self._result(job.name), temporary, job.run)

    def _result(self, job_id: JobId) -> str:
        return f"{self._results}/{job_id}.xml"

    def result_location(self, job_id: UUID, recorded: str) -> str:
        return self._result(job_id)

    def has_result(self, job_id: UUID, location: str | None) -> bool:
        return location is not None and is_regular(self._result(job_id))

    def open_result(self, job_id: UUID, location: str | None) -> OpenResult:
        if location is None:
            raise FileNotFoundError(errno.ENOENT, "the row names no result")
        try:
            file, status = open_regular(self._result(job_id))
        except OSError as error:
            if error.errno in NOT_A_RESULT:
                raise FileNotFoundError(errno.ENOENT, _reason(error)) from None
            raise
        return OpenResult(file, status.st_size, f"{status.st_mtime_ns:x}-{status.st_size:x}")

    def sync_results(self) -> None:
        sync_directory(self._results)

    def presign_result(self, job_id: UUID, location: str | None, name: str) -> None:
        return None

    def remove_result(self, job_id: UUID) -> None:
        Path(self._result(job_id)).unlink(missing_ok=True)

    # -- temporary files --

    def temporary_location(self, job_id: JobId, attempt: int, holder: str) -> str:
        """It is named by its lease: the session that ends the lease knows what to remove."""
        return f"{self._results}/.{job_id}.{attempt}.{_file_name_part(holder)}.part"

    def discard_temporary_file(self, job_id: JobId, attempt: int, holder: str) -> None:
        discard(self.temporary_location(job_id, attempt, holder))

    def list_temporary_results(self) -> Iterator[StoredFile]:
        """The two directories may be one: a file of attempt 0 is an upload in progress."""
        return (file for file in list_directory(self.results, TEMPORARY) if file.attempt > 0)

    def is_held_by(self, file: StoredFile, holder: str) -> bool:
        return file.holder == _file_name_part(holder)

    # -- retention --

    def list_sources(self) -> Iterator[StoredFile]:
        return list_directory(self.uploads, SOURCE)

    def list_results(self) -> Iterator[StoredFile]:
        return list_directory(self.results, RESULT)

    def list_temporary_files(self) -> Iterator[StoredFile]:
        """The two directories may be one."""
        for directory in {self.uploads.resolve(): self.uploads, self.results.resolve(): self.results}.values():
            yield from list_directory(directory, TEMPORARY)

    def job_locations(self, job_id: UUID, attempt: int, holder: str | None) -> list[str]:
        temporary = [self.temporary_location(job_id, attempt, holder)] if holder else []
        return [self.source_location(job_id), self._result(job_id), *temporary]

    def remove(self, locations: Sequence[str], *, dry_run: bool = False) -> list[Removed]:
        with ThreadPoolExecutor(REMOVAL_THREADS) as threads:
            return list(threads.map(partial(_remove, dry_run=dry_run), locations))


def _remove(location: str, *, dry_run: bool) -> Removed:
    path = Path(location)
    try:
        found = path.lstat()
        is_ours = stat.S_ISREG(found.st_mode)
        if is_ours and not dry_run:
            path.unlink()
        return Removed(found.st_size if is_ours else 0)
    except FileNotFoundError:
        return Removed()
    except OSError as error:
        return Removed(error=_reason(error))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


@functools.lru_cache(64)  # a worker has one name, and needs it with every job
def _file_name_part(holder: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", holder)[-120:]
