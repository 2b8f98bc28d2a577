"""The multipart form that a PDF is sent in: what is around the file's bytes."""

from __future__ import annotations

import secrets

from convertq.worker.job import Job


class Form:
    """Made once per worker, but for the file's name."""

    def __init__(self) -> None:
        # random, and known to nobody who uploads: no PDF can hold it
        self._boundary = secrets.token_hex(16)
        self.content_type = f"multipart/form-data; boundary={self._boundary}"
        self._tails: dict[tuple[str, bool], bytes] = {}

    def head(self, job: Job) -> bytes:
        disposition = f'Content-Disposition: form-data; name="file"; filename="{job.name}.pdf"'
        return f"--{self._boundary}\r\n{disposition}\r\nContent-Type: application/pdf\r\n\r\n".encode()

    def tail(self, job: Job) -> bytes:
        options = (job.mapping, job.pretty)
        if options not in self._tails:  # few: only a mapping on the allow-list gets here
            fields = {"mapping": job.mapping, "pretty": "1" if job.pretty else "0"}
            parts = [f'\r\n--{self._boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}'
                     for name, value in fields.items()]  # fmt: skip
            self._tails[options] = f"{''.join(parts)}\r\n--{self._boundary}--\r\n".encode()
        return self._tails[options]
