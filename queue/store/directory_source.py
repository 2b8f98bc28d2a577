"""An uploaded PDF in a directory: a temporary file until the transaction that records its job gives it its name."""

from __future__ import annotations

from typing import BinaryIO
from uuid import UUID

from convertq.queue.store.regular_file import create, discard, rename_into_place, sync


class DirectorySource:
    def __init__(self, directory: str, upload_id: UUID) -> None:
        self._directory, self._temporary = directory, f"{directory}/.{upload_id}.0.upload.part"
        self._place = self._temporary  # where the file is now

    def create(self) -> BinaryIO:
        return create(self._temporary)

    def finish(self, sink: BinaryIO) -> None:
        sync(sink)

    def put(self, job_id: UUID) -> None:
        """May be repeated, by a submission whose transaction was lost after this."""
        target = f"{self._directory}/{job_id}.pdf"
        if self._place != target:
            rename_into_place(self._place, target)
            self._place = target

    def discard(self) -> None:
        discard(self._temporary)
