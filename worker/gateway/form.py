"""The multipart form that a PDF is sent in: what surrounds the bytes of the file."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from convertq.queue.job import ClaimedJob


class Form:
    """Made once per worker. Its parts are made once for each combination of options, except for the file's name."""

    def __init__(self, file_field: str, fields: Mapping[str, str]) -> None:
        self._file_field, self._fields = file_field, fields
        self._boundary = secrets.token_hex(16)  # random and known to no client, so no PDF can contain it
        self.content_type = f"multipart/form-data; boundary={self._boundary}"
        self._endings: dict[tuple[str, bool], bytes] = {}

    def before_file(self, job: ClaimedJob) -> bytes:
        disposition = f'Content-Disposition: form-data; name="{self._file_field}"; filename="{job.name}.pdf"'
        return f"--{self._boundary}\r\n{disposition}\r\nContent-Type: application/pdf\r\n\r\n".encode()

    def after_file(self, job: ClaimedJob) -> bytes:
        options = (job.mapping, job.pretty)
        if options not in self._endings:  # few: only mappings on the allow-list are converted
            self._endings[options] = self._ending({"mapping": job.mapping, "pretty": "1" if job.pretty else "0"})
        return self._endings[options]

    def _ending(self, options: Mapping[str, str]) -> bytes:
        parts = [
            f'\r\n--{self._boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value.format(**options)}'
            for name, value in self._fields.items()
        ]
        return f"{''.join(parts)}\r\n--{self._boundary}--\r\n".encode()
