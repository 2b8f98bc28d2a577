"""What systemd is told (sd_notify): readiness, status, watchdog, reload, stop. Silent where nobody listens."""

from __future__ import annotations

import contextlib
import os
import socket
import time

REPEAT_AFTER = 1.0  # s: a status that has not changed


class Systemd:
    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status, self._repeat_at = "", 0.0

    def is_ready(self) -> None:
        self._notify("READY=1")

    def is_alive(self) -> None:
        """The watchdog's ping. Only where something has just been got done: it must not speak for a loop that hangs."""
        self._notify("WATCHDOG=1")

    def shows(self, status: str) -> None:
        """The ping with the line of `systemctl status`; often called, seldom sent."""
        now = time.monotonic()
        if status != self._status or now >= self._repeat_at:
            self._status, self._repeat_at = status, now + REPEAT_AFTER
            self._notify("WATCHDOG=1", f"STATUS={status}")

    def reloads(self) -> None:
        """With the time, which Type=notify-reload asks for; others ignore it. `is_ready` ends it."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stops(self, within: float) -> None:
        """`TimeoutStopSec` is extended where it is shorter: what was granted to the jobs, systemd must not cut off."""
        self._notify("STOPPING=1")
        self._notify(f"EXTEND_TIMEOUT_USEC={int(within * 1_000_000)}")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto("\n".join(lines).encode(), self._address)
