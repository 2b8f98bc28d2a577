"""How long the suite takes: CHAOS_MINUTES is the length of the storm, and decides that of everything beside it."""

from __future__ import annotations

import os
import time

from tests.waiting import WAIT_SECONDS, eventually

MINUTES = float(os.environ.get("CHAOS_MINUTES") or 10)
#: directories, or s3: then the storage server is killed, frozen and cut too.
STORE = os.environ.get("CHAOS_STORE") or "directories"
#: With a storm under five minutes, as in CI, faults are shorter, and so are the settings that they must outlast.
SHORT = MINUTES < 5
#: For those: a host is dead after 5 s instead of 40.
QUICK_HEARTBEATS: dict[str, object] = {"WORKER_HEARTBEAT_SEC": 1, "WORKER_HEARTBEAT_TIMEOUT_SEC": 5}
#: No statement of a worker waits longer for its answer (ANSWER_TIMEOUT_SECONDS is 12): then it connects again.
LONGER_THAN_ANSWER_TIMEOUT_SECONDS = 16.0


def wait_until(timestamp: float) -> None:
    """By the monotonic clock: for a fault that has to last."""
    eventually(lambda: time.monotonic() >= timestamp, max(0.0, timestamp - time.monotonic()) + WAIT_SECONDS)
