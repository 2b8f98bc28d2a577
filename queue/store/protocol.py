"""What every store can do. A job has one source, a result of its newest run, and a temporary file for each attempt.

A *location* is the text by which a row names a file (`upload_path`, `result_path`). Only the store that made a location
can read it. A store reports every problem as an OSError, whatever its own library raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, NamedTuple, Protocol
from uuid import UUID

from convertq.queue.artifact import Artifact
from convertq.queue.doctor.finding import Finding
from convertq.queue.job import ClaimedJob

#: A file that no row names is an orphan after this time. Until then it may belong to a submission or to an attempt that
#: is still running.
ORPHAN_AGE_SECONDS = 24 * 3600.0

#: The worker passes ids as text: to format a UUID for each path would cost more than the system call.
JobId = UUID | str


class PendingSource(Protocol):
    """An uploaded PDF until the transaction that records its job."""

    def create(self) -> BinaryIO:
        """A file to write to. It must not exist yet."""

    def finish(self, sink: BinaryIO) -> None:
        """Makes what was written durable. The sink is still open."""

    def put(self, job_id: UUID) -> None:
        """Makes it the source of this job, and replaces an older source.

        It is the last step before the commit: after anything that fails before it, no source is left behind.
        """

    def discard(self) -> None:
        """Removes what `put` has not taken. It never raises."""


class PendingResult(Protocol):
    """The result of one attempt, from its first byte until the row names it."""

    @property
    def location(self) -> str:
        """What the row will name. It is final after `finish`."""

    @property
    def artifact(self) -> Artifact | None:
        """What `job_artifacts` records of it; None where the job's row alone names the result."""

    def create(self) -> BinaryIO:
        """A temporary file to write to, named by its lease: the session that ends the lease can remove it."""

    def finish(self, sink: BinaryIO) -> None:
        """Makes what was written durable, marked with its run. The sink is still open, and its XML was checked."""

    def publish(self) -> None:
        """Makes it readable at its location. The caller holds the lock on the job's row, with a valid lease, and calls
        `Store.sync_results` before the commit.

        It may be repeated after a commit that was lost. Raises FileExistsError when something is at the location that
        is not a whole result of the same run; nothing is ever replaced but a result of an earlier run.
        """

    def discard(self) -> None:
        """Removes the temporary file. It never raises, and a published result stays."""

    def may_have_leftover(self) -> bool:
        """Whether `find_leftover` is worth its cost. It must be cheap: every job asks."""

    def find_leftover(self) -> str | None:
        """The location of a whole result of this run, left by an attempt that died before its commit."""

    def remove_leftover(self) -> None:
        """Removes an unusable result that would block `publish`. The caller holds the lock on the job's row."""


class OpenSource(NamedTuple):
    """A source that is open for reading. The caller closes the file, which need not be on a disk of this host."""

    file: BinaryIO
    size: int  # bytes


class OpenResult(NamedTuple):
    """A result that is open for reading: a later removal does not affect it. The caller closes the file."""

    file: BinaryIO  # seekable
    size: int
    etag: str


@dataclass(frozen=True)
class StoredFile:
    """A file that was found by listing the store, by its name alone."""

    location: str
    job_id: UUID
    written_at: datetime
    age_seconds: float  # by the clock of the store
    attempt: int = 0  # of a temporary file; 0 for an upload
    holder: str = ""  # of a temporary file, as it is written in the name

    @property
    def is_old(self) -> bool:
        return self.age_seconds > ORPHAN_AGE_SECONDS


@dataclass(frozen=True)
class Removed:
    """A file or a job that was removed, or would be in a dry run; with an error, one that could not be removed."""

    bytes: int = 0
    error: str | None = None


class Store(Protocol):
    # -- the store as a whole --

    @property
    def is_remote(self) -> bool:
        """Whether each check for a file is a request over the network: then lists of jobs rely on their rows."""

    def make_ready(self) -> None:
        """What a long-running process or a submission needs first. Raises ConfigError."""

    def require(self) -> None:
        """Raises FileNotFoundError when the store is not there: a missing mount must not pass for an empty store."""

    def reason_to_pause(self) -> str:
        """Why this host must not claim; empty when it may. It is checked before every claim and must be cheap."""

    def prepare_workers(self) -> None:
        """Called once before the workers of this host start: they claim nothing until the store works."""

    def is_working(self) -> bool:
        """Called after an error: False means that the store as a whole fails, and that this host pauses."""

    @property
    def bytes_moved(self) -> int:
        """Counts up while this process transfers files over the network: a long transfer is not a hung one."""

    def abort_transfers(self) -> None:
        """Called from another thread: every transfer of this process fails at once, until `permit_transfers`."""

    def permit_transfers(self) -> None:
        """Called when an attempt has ended."""

    def check_access(self) -> list[Finding]:
        """For `convertq doctor`: whether this host can read and write."""

    def check_space(self) -> Finding:
        """For `convertq doctor`: whether there is room for results, or for their temporary files."""

    # -- sources --

    def new_source(self, job_id: UUID) -> PendingSource: ...

    def source_location(self, job_id: UUID) -> str: ...

    def has_source(self, job_id: UUID) -> bool: ...

    def find_sources(self, ids: Sequence[UUID]) -> list[UUID]:
        """Those of these jobs whose source is there."""

    def open_source(self, job_id: JobId) -> OpenSource: ...

    # -- results: `location` is the row's `result_path` --

    def new_result(self, job: ClaimedJob) -> PendingResult: ...

    def has_result(self, job_id: UUID, location: str | None) -> bool: ...

    def open_result(self, job_id: UUID, location: str | None) -> OpenResult:
        """Raises FileNotFoundError when there is no result, or something that no worker wrote."""

    def sync_results(self) -> None:
        """Makes durable what was published: once for all results that one commit names."""

    def presign_result(self, job_id: UUID, location: str | None, name: str) -> str | None:
        """A URL by which a browser can download it, with `name` as its Content-Disposition; None: there is none.

        Raises FileNotFoundError when there is no result.
        """

    def remove_result(self, job_id: UUID) -> None:
        """Removes what may be in the way of the job's next run, or is left of a job that is gone."""

    # -- temporary files --

    def discard_temporary_file(self, job_id: JobId, attempt: int, holder: str) -> None:
        """Removes the temporary file of one lease, if there is one. It never raises."""

    def list_temporary_results(self) -> Iterator[StoredFile]:
        """Temporary files of attempts, without those of uploads."""

    def is_held_by(self, file: StoredFile, holder: str) -> bool:
        """Whether a temporary file was made under a lease of this holder."""

    # -- retention --

    def list_sources(self) -> Iterator[StoredFile]: ...

    def list_results(self) -> Iterator[StoredFile]: ...

    def list_temporary_files(self) -> Iterator[StoredFile]:
        """Temporary files of attempts and of uploads."""

    def result_location(self, job_id: UUID, recorded: str) -> str:
        """Where the result is that the row records; a store may ignore what it cannot have written itself."""

    def job_locations(self, job_id: UUID, attempt: int, holder: str | None) -> list[str]:
        """Everything that may be stored of a job. With a holder, an attempt runs, or ran when its worker died."""

    def remove(self, locations: Sequence[str], *, dry_run: bool = False) -> list[Removed]:
        """Returns what became of each, in the same order. A missing file counts as removed; what no store wrote stays.

        However this is interrupted, no removal continues after it returns: the caller's row locks end then.
        """
