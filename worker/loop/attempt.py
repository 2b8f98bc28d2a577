"""One attempt at one job: from its source, through the gateway, to a checked result that can be published."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, TypeVar

from convertq.queue.errors import StorageError, io_failure
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Completed, Interrupted
from convertq.queue.store.protocol import OpenSource, Store
from convertq.worker.gateway.client import GatewayCall, GatewayClient
from convertq.worker.gateway.progress import Progress

Done = TypeVar("Done")
Step = Callable[[], Completed | Interrupted | None]


class StorageAway(Exception):
    """The storage as a whole fails: that is not the job's failure, and the attempt does not count."""


class Attempt:
    """It uses the job's source, a temporary file of its own and the gateway; it writes no row and publishes nothing."""

    def __init__(self, client: GatewayClient, store: Store, job: ClaimedJob) -> None:
        self._store, self._job_id = store, job.name
        self.result = store.new_result(job)
        self.progress = Progress()
        self.call = GatewayCall(client, job, self.progress)
        self._is_aborted = False

    @property
    def bytes_moved(self) -> int:
        """From and to the storage; it changes while a transfer goes on."""
        return self._store.bytes_moved

    def abort(self) -> None:
        """Called from another thread: the call or the transfer under way fails at once, and no other begins."""
        self._is_aborted = True
        self.call.abort()
        self._store.abort_transfers()

    def abort_call(self) -> None:
        """The same for a job that was cancelled, except for a transfer: the result of an upload that was cut off could
        appear after it was removed."""
        self.call.abort()

    def check_leftover(self) -> Completed | Interrupted | None:
        """A whole result of this run whose attempt died between its publication and the commit; None: there is none."""
        self.progress.step = "writing"
        try:
            location = self._find_leftover()
        except StorageAway:
            return Interrupted("storage")
        return None if location is None else Completed(location, artifact=self.result.artifact)

    def _find_leftover(self) -> str | None:
        try:
            return self.result.find_leftover()
        except StorageError as error:
            return self._repeat("an earlier result cannot be read", error, self.result.find_leftover)

    def convert(self) -> Completed | Interrupted:
        """Raises Failure; the temporary file exists if and only if this returns a Completed."""
        try:
            return self._convert()
        except StorageAway:
            return Interrupted("storage")

    def _convert(self) -> Completed:
        try:
            source = self._open_source()
            with source.file, self._create_result() as sink:
                self.call.run(source, sink)
                self._finish(sink)
        except BaseException:
            self.result.discard()
            raise
        status, milliseconds = self.call.status, self.call.milliseconds
        return Completed(
            self.result.location, self.result, gateway_status=status, gateway_ms=milliseconds,
            artifact=self.result.artifact,
        )  # fmt: skip

    def _open_source(self) -> OpenSource:
        try:
            return self._store.open_source(self._job_id)
        except OSError as error:
            return self._repeat("the source file cannot be read", error, lambda: self._store.open_source(self._job_id))

    def _create_result(self) -> BinaryIO:
        try:
            return self.result.create()
        except OSError as error:
            raise io_failure("the result cannot be written", error) from None

    def _finish(self, sink: BinaryIO) -> None:
        try:
            self.result.finish(sink)
        except OSError as error:
            self._repeat("the result cannot be written", error, lambda: self.result.finish(sink))

    def _repeat(self, what: str, error: OSError, operation: Callable[[], Done]) -> Done:
        """After an error of the storage, a probe decides whether the storage or this one file is the problem.

        The storage may have come back between the two: the operation has to fail beside a storage that works.
        """
        if isinstance(error, StorageError) and not self._is_aborted:
            self._require_storage()
            try:
                return operation()
            except OSError as again:
                error = again
        if isinstance(error, StorageError) and not self._is_aborted:
            self._require_storage()
        raise io_failure(what, error) from None

    def _require_storage(self) -> None:
        if not self._store.is_working():
            raise StorageAway
