"""What systemd is told (sd_notify): readiness, status, watchdog, stopping. Silent where nobody listens."""

from __future__ import annotations

import contextlib
import os
import socket


class Systemd:
    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def notify(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto("\n".join(lines).encode(), self._address)
