"""systemd's end of sd_notify in tests: a socket that remembers what it was told."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Self

from tests.waiting import WAIT_SECONDS, eventually


class NotifySocket:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._messages: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def __enter__(self) -> Self:
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.shutdown(socket.SHUT_RD)

    @property
    def lines(self) -> list[str]:
        """Everything that was said, in its order."""
        return [line for message in list(self._messages) for line in message.split("\n")]

    def wait_for(self, line: str, count: int = 1, timeout: float = WAIT_SECONDS) -> None:
        eventually(lambda: self.lines.count(line) >= count, timeout, f"{line} to be said {count} times")

    def _read(self) -> None:
        with self._socket:
            while message := self._socket.recv(4096):
                self._messages.append(message.decode())
