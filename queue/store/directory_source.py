"""An uploaded PDF in a directory: a temporary file until the transaction that records its job gives it its name."""

from __future__ import annotations

from typing import BinaryIO
from uuid import UUID

from convertq.queue.store.regular_file import create, discard, rename_into_place, sync


class DirectorySource:
    def __init__(self, directory: str, upload_id: UUID) -> None:
        self._directory, self._temporary = directory, f"{directory}/.{upload_id}.0.upload.part"

    def create(self) -> BinaryIO:
        return create(self._temporary)

    def finish(self, sink: BinaryIO) -> None:
        sync(sink)

    def put(self, job_id: UUID) -> None:
        rename_into_place(self._temporary, f"{self._directory}/{job_id}.pdf")

    def discard(self) -> None:
        discard(self._temporary)
