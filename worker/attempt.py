"""One attempt at one job, on a thread of its own, so that its watcher can extend the lease beside the blocking call."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import BinaryIO

from convertq.worker.config import Config
from convertq.worker.errors import Code, Failure, io_failure
from convertq.worker.files import Files, create, discard, open_regular, sync
from convertq.worker.gateway_client import GatewayCall, Progress
from convertq.worker.job import Job
from convertq.worker.outcome import Completed
from convertq.worker.xml_check import is_whole

Step = Callable[[], Completed | None]


class Attempt:
    """Touches the job's source, its own temp file and the gateway; never the row, never the result's name."""

    def __init__(self, config: Config, files: Files, job: Job) -> None:
        self._files, self._job = files, job
        self.part = files.part(job.id, job.attempt, job.holder)
        self.progress = Progress()
        self.call = GatewayCall(config, job, self.progress)

    def check_leftover(self) -> Completed | None:
        """A result whose attempt died between putting it in place and the commit; None: it is not whole."""
        self.progress.step = "writing"
        return Completed(part=None) if is_whole(self._files.result(self._job.id)) else None

    def convert(self) -> Completed:
        """Raises Failure; the temp file is there if and only if it returns."""
        try:
            with self._open_source() as source, self._create_part() as sink:
                self.call.run(source, sink)
                self._sync(sink)
        except BaseException:
            discard(self.part)
            raise
        return Completed(self.part, gateway_status=self.call.status, gateway_ms=self.call.milliseconds)

    def _open_source(self) -> BinaryIO:
        try:
            return open_regular(self._files.source(self._job.id))
        except OSError as error:
            raise io_failure("the source file cannot be read", error) from None

    def _create_part(self) -> BinaryIO:
        try:
            return create(self.part)
        except OSError as error:
            raise io_failure("the result cannot be written", error) from None

    @staticmethod
    def _sync(sink: BinaryIO) -> None:
        try:
            sync(sink)
        except OSError as error:
            raise io_failure("the result cannot be written", error) from None


class Background:
    """A step on a daemon thread: readable on `done` when it has ended, with its result or its failure."""

    def __init__(self, step: Step) -> None:
        self.done, self._ended = os.pipe2(os.O_CLOEXEC)
        self._step = step
        self.result: Completed | Failure | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="attempt")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._step()
        except Failure as failure:
            self.result = failure
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends here as a value
            self.result = Failure(
                Code.UNKNOWN,
                f"an unexpected error: {type(error).__name__}",
                detail=traceback.format_exc(limit=-6),
            )
        finally:
            os.close(self._ended)

    def join(self, timeout: float) -> bool:
        """Whether the thread has ended; if not (a hung disk or name server), it is left behind."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        os.close(self.done)
        return True
