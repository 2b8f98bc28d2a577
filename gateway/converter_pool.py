"""Keeps a few converter processes, hands jobs to them, and replaces those that die."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from typing import Any

from convertq.gateway.answer import Refusal

logger = logging.getLogger(__name__)
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)  # the system or the operator, not the document
COMMAND = [sys.executable, "-m", f"{__package__}.converter"]


@dataclass(frozen=True)
class Job:
    source: str
    target: str
    input: str
    output: str
    mapping: str
    pretty: bool


class ConverterPool:
    """Converters are started when they are first needed; a dead one is simply not put back."""

    def __init__(self, size: int, seconds: float) -> None:
        self.seconds = seconds
        self.free = threading.Semaphore(size)
        self.lock = threading.Lock()
        self.idle: list[subprocess.Popen[str]] = []
        self.alive: set[subprocess.Popen[str]] = set()
        self.closed = False

    def convert(self, job: Job) -> None:
        """Returns when the target is written; refuses what cannot be converted."""
        if not self.free.acquire(timeout=self.seconds):
            raise Refusal(503, "all converters are busy", Retry_After="5")
        try:
            converter = self.take()
            outcome = self.request(converter, job)
            self.release(converter)
        finally:
            self.free.release()
        if outcome["status"] != 200:
            raise Refusal(outcome["status"], outcome["message"])

    def take(self) -> subprocess.Popen[str]:
        with self.lock:
            if self.closed:
                raise Refusal(503, "the gateway is stopping")
            while self.idle:
                converter = self.idle.pop()
                if converter.poll() is None:
                    return converter
                self.alive.discard(converter)
            converter = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
            self.alive.add(converter)
            return converter

    def request(self, converter: subprocess.Popen[str], job: Job) -> dict[str, Any]:
        assert converter.stdin
        assert converter.stdout
        line = ""
        try:
            converter.stdin.write(json.dumps(asdict(job) | {"seconds": self.seconds}) + "\n")
            converter.stdin.flush()
            line = converter.stdout.readline()
        except BrokenPipeError:
            logger.warning("a converter died before it read its job")
        if not line.endswith("\n"):
            self.reap(converter)
            raise self.cause_of_death(converter.returncode)
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    def cause_of_death(self, code: int) -> Refusal:
        """A crash is the document's fault and would happen again; anything else may be worth a retry."""
        if code == -signal.SIGALRM:
            return Refusal(504, f"the conversion took longer than {self.seconds:g} s")
        if code < 0 and code not in FROM_OUTSIDE:
            return Refusal(422, "the document crashed the converter")
        return Refusal(500, "the converter ended unexpectedly")

    def release(self, converter: subprocess.Popen[str]) -> None:
        with self.lock:
            if not self.closed:
                self.idle.append(converter)

    def reap(self, converter: subprocess.Popen[str]) -> None:
        converter.kill()
        converter.wait()
        with self.lock:
            self.alive.discard(converter)
        for pipe in (converter.stdin, converter.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe:
                    pipe.close()

    def close(self) -> None:
        """Ends every converter. The thread that waits for a busy one sees it die and buries it."""
        with self.lock:
            self.closed = True
            idle, busy = self.idle, self.alive.difference(self.idle)
            self.idle = []
        for converter in busy:
            converter.kill()
            converter.wait()
        for converter in idle:
            self.reap(converter)
