"""The result of one attempt in a directory: a temporary file, then a second name for it."""

from __future__ import annotations

import contextlib
import os
from typing import BinaryIO

from convertq.queue.artifact import Artifact
from convertq.queue.store.regular_file import create, discard, open_regular, put_in_place, sync
from convertq.queue.store.run_mark import is_of_earlier_run, is_of_run, mark_run
from convertq.queue.xml_check import NotXml, check_file


class DirectoryResult:
    """It holds paths as plain strings: for each job, pathlib would take longer than the file system."""

    __slots__ = ("_run", "_temporary", "location")
    artifact: Artifact | None = None

    def __init__(self, location: str, temporary: str, run: int) -> None:
        self.location, self._temporary, self._run = location, temporary, run

    def create(self) -> BinaryIO:
        return create(self._temporary)

    def finish(self, sink: BinaryIO) -> None:
        mark_run(sink, self._run)
        sync(sink)

    def publish(self) -> None:
        if is_of_earlier_run(self.location, self._temporary, self._run):
            discard(self.location)
        try:
            put_in_place(self._temporary, self.location)
        except FileExistsError:
            # An attempt of this run that was paused before its commit may have put it there: whole, it is as good.
            if not self._has_whole_result():
                raise

    def discard(self) -> None:
        discard(self._temporary)

    def may_have_leftover(self) -> bool:
        return os.path.lexists(self.location)

    def find_leftover(self) -> str | None:
        return self.location if self._has_whole_result() else None

    def remove_leftover(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.location)  # noqa: PTH108

    def _has_whole_result(self) -> bool:
        """A result of another run may have had another mapping or source."""
        return is_of_run(self.location, self._run) and is_whole(self.location)


def is_whole(result: str) -> bool:
    try:
        with open_regular(result).file as file:
            check_file(file)
    except (OSError, NotXml):
        return False
    return True
