"""Notifications to systemd (sd_notify): readiness, status, watchdog, reload, stop. They need NOTIFY_SOCKET."""

from __future__ import annotations

import contextlib
import os
import socket
import time

REPEAT_STATUS_AFTER_SECONDS = 1.0


class Systemd:
    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status, self._repeat_at = "", 0.0

    def notify_ready(self) -> None:
        self._notify("READY=1")

    def notify_alive(self) -> None:
        """Resets the watchdog. Called only after a step that was completed: a loop that hangs must not reset it."""
        self._notify("WATCHDOG=1")

    def notify_status(self, status: str) -> None:
        """Resets the watchdog and sets the line of `systemctl status`. An unchanged line is sent once a second."""
        now = time.monotonic()
        if status != self._status or now >= self._repeat_at:
            self._status, self._repeat_at = status, now + REPEAT_STATUS_AFTER_SECONDS
            self._notify("WATCHDOG=1", f"STATUS={status}")

    def notify_reloading(self) -> None:
        """Type=notify-reload requires the time; other types ignore it. `notify_ready` ends the reload."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_stopping(self, within_seconds: float) -> None:
        """Extends a shorter `TimeoutStopSec`: systemd must not cut off the grace that the jobs were given."""
        self._notify("STOPPING=1")
        self._notify(f"EXTEND_TIMEOUT_USEC={int(within_seconds * 1_000_000)}")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto("\n".join(lines).encode(), self._address)
