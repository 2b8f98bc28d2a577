"""One attempt at one job, on a second thread, so that its watcher can extend the lease beside the blocking call."""

from __future__ import annotations

import os
import queue
import select
import threading
import traceback
from collections.abc import Callable
from typing import BinaryIO

from convertq.worker.errors import Code, Failure, io_failure
from convertq.worker.files import Files, create, discard, open_regular, sync
from convertq.worker.gateway_client import GatewayCall, GatewayClient, Progress
from convertq.worker.job import Job
from convertq.worker.outcome import Completed
from convertq.worker.xml_check import is_whole

Step = Callable[[], Completed | None]


class Attempt:
    """Touches the job's source, its own temp file and the gateway; never the row, never the result's name."""

    def __init__(self, client: GatewayClient, files: Files, job: Job) -> None:
        self._files, self._job = files, job
        self.part = files.part(job.id, job.attempt, job.holder)
        self.progress = Progress()
        self.call = GatewayCall(client, job, self.progress)

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
    """A daemon thread that takes one step after another; `done` is readable when a step has ended.

    It lives as long as its process: a thread made for each job would cost more than many a job's claim.
    """

    def __init__(self) -> None:
        self.done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._result: Completed | Failure | None = None
        threading.Thread(target=self._run, daemon=True, name="attempt").start()

    def begin(self, step: Step) -> None:
        self._steps.put(step)

    def _run(self) -> None:
        while True:
            self._result = _ending_of(self._steps.get())
            os.eventfd_write(self.done, 1)

    def has_ended(self, timeout: float) -> bool:
        """If it has not (a hung disk or name server), the thread is lost, and with it the process."""
        poll = select.poll()
        poll.register(self.done, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def take_result(self) -> Completed | Failure | None:
        """Once for each step, after it has ended."""
        os.eventfd_read(self.done)
        return self._result


def _ending_of(step: Step) -> Completed | Failure | None:
    try:
        return step()
    except Failure as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends here as a value
        message = f"an unexpected error: {type(error).__name__}"
        return Failure(Code.UNKNOWN, message, detail=traceback.format_exc(limit=-6))
