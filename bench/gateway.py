"""The null gateway as the benchmarks hold it: started, told how to answer, asked what it saw."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.request import Request, urlopen

from bench.processes import running


class Seen(NamedTuple):
    job_id: str
    at: float  # monotonic seconds, the same clock in every process of this host


class Gateway:
    def __init__(self, url: str) -> None:
        self.url = url

    def reset(
        self, *, hold: bool = False, delay: float = 0.0, capacity: int = 0,
        per_megabyte: float = 0.0, spread: float = 0.0,
    ) -> None:  # fmt: skip
        speed = f"delay={delay}&capacity={capacity}&per_megabyte={per_megabyte}&spread={spread}"
        self._ask("POST", f"/reset?hold={int(hold)}&{speed}")

    def change(self, *, delay: float, capacity: int) -> None:
        """For calls that arrive from now on."""
        self._ask("POST", f"/change?delay={delay}&capacity={capacity}")

    def set_down(self, *, is_down: bool) -> None:
        """While it is down it answers 503, also to probes."""
        self._ask("POST", "/down" if is_down else "/up")

    def open(self) -> float:
        """Answers what was held back; when that was."""
        return float(self._ask("POST", "/open"))

    def count(self) -> int:
        return int(self._ask("GET", "/count"))

    def seen(self) -> list[Seen]:
        lines = (line.split() for line in self._ask("GET", "/seen").splitlines())
        return [Seen(job_id, float(at)) for job_id, at in lines]

    def wait_for(self, requests: int, timeout: float, every: float = 0.05) -> None:
        deadline = time.monotonic() + timeout
        while (count := self.count()) < requests:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count} of {requests} requests within {timeout:g} s")
            time.sleep(every)

    def _ask(self, method: str, path: str) -> str:
        with urlopen(Request(self.url + path, method=method), timeout=60) as response:
            return str(response.read().decode())


@contextmanager
def null_gateway() -> Iterator[Gateway]:
    with running([sys.executable, "-m", "bench.null_gateway"], reads=True) as process:
        assert process.stdout
        yield Gateway(process.stdout.readline().decode().removeprefix("listening on ").strip())
