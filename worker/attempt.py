"""One attempt at one job: from its source, through the gateway, to a checked temp file."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from convertq.worker.errors import io_failure
from convertq.worker.files import Files, create, discard, open_regular, sync
from convertq.worker.gateway_client import GatewayCall, GatewayClient, Progress
from convertq.worker.job import Job
from convertq.worker.outcome import Completed
from convertq.worker.xml_check import is_whole

Step = Callable[[], Completed | None]


class Attempt:
    """Touches the job's source, its own temp file and the gateway; never the row, never the result's name."""

    def __init__(self, client: GatewayClient, files: Files, job: Job) -> None:
        self.paths = files.of_attempt(job.name, job.attempt, job.holder)
        self.progress = Progress()
        self.call = GatewayCall(client, job, self.progress)

    def check_leftover(self) -> Completed | None:
        """A result whose attempt died between putting it in place and the commit; None: it is not whole."""
        self.progress.step = "writing"
        return Completed(part=None) if is_whole(self.paths.result) else None

    def convert(self) -> Completed:
        """Raises Failure; the temp file is there if and only if it returns."""
        try:
            with self._open_source() as source, self._create_part() as sink:
                self.call.run(source, sink)
                self._sync(sink)
        except BaseException:
            discard(self.paths.part)
            raise
        return Completed(self.paths.part, gateway_status=self.call.status, gateway_ms=self.call.milliseconds)

    def _open_source(self) -> BinaryIO:
        try:
            return open_regular(self.paths.source)
        except OSError as error:
            raise io_failure("the source file cannot be read", error) from None

    def _create_part(self) -> BinaryIO:
        try:
            return create(self.paths.part)
        except OSError as error:
            raise io_failure("the result cannot be written", error) from None

    @staticmethod
    def _sync(sink: BinaryIO) -> None:
        try:
            sync(sink)
        except OSError as error:
            raise io_failure("the result cannot be written", error) from None
