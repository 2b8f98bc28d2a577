"""All parts of convertq on one machine: PostgreSQL, gateway, workers and web; only what the settings do not name."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from convertq.embedded.binaries import EmbeddedError
from convertq.embedded.cleanup import RepeatedCleanup
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.embedded.service import Service
from convertq.queue.config import Config, read_config
from convertq.queue.signals import Signals

RECOVERY_SECONDS = 600.0  # PostgreSQL after a crash, on a slow disk
CONVERTERS_MAX = 64
STOP_MARGIN_SECONDS = 30.0  # beyond the grace of the workers, for the last statements; the grace of the web is as long
STOP = (signal.SIGINT, signal.SIGTERM)


class LocalStack:
    """Parts are stopped in the reverse order of their start. Start them from the main thread (see Service)."""

    def __init__(self, settings: Mapping[str, str], log_folder: Path | None = None) -> None:
        """Without a folder for their logs, the parts write to this process's stderr."""
        self.environment = dict(settings)
        self._log_folder = log_folder
        self._running = contextlib.ExitStack()
        self._services: list[Service] = []
        self._postgres: EmbeddedPostgres | None = None
        self._cleanup: RepeatedCleanup | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def start_database(self, postgres: EmbeddedPostgres) -> None:
        postgres.start(RECOVERY_SECONDS)
        self._running.callback(postgres.close)
        self._postgres = postgres
        self.environment["DATABASE_URL"] = postgres.url()

    def start_gateway(self, mappings: Sequence[str]) -> None:
        """The reference gateway, with the limits of the queue; all its mappings are allowed unless some are chosen."""
        config = read_config(self.environment)
        converters = min(config.worker_concurrency.most, CONVERTERS_MAX)
        limits = ("--converters", str(converters), "--max-bytes", str(config.max_upload_bytes))
        gateway = self._start("the reference gateway", "gateway", "run", "--port", "0", *limits)
        self.environment["GATEWAY_URL"] = gateway.address()
        if not self.environment.get("MAPPINGS_ALLOWED"):
            self.environment["MAPPINGS_ALLOWED"] = ",".join(mappings)

    def start_worker(self) -> None:
        self._start("the worker pool", "worker", "run")

    def start_web(self) -> str:
        """Returns its address."""
        return self._start("the web server", "web", "run", stop_at_once=signal.SIGQUIT).address()

    def repeat_cleanup(self, report: Callable[[str], None]) -> None:
        """Retention, by `wait`; `report` gets a line about each failure."""
        self._cleanup = self._running.enter_context(contextlib.closing(RepeatedCleanup(self.environment, report)))

    def _start(self, name: str, *arguments: str, stop_at_once: signal.Signals = signal.SIGTERM) -> Service:
        log = self._log_folder / f"{arguments[0]}.log" if self._log_folder else None
        service = Service(name, *arguments, environment=self.environment, log=log, stop_at_once=stop_at_once)
        self._services.append(self._running.enter_context(service))
        return service

    def refuse_ended_part(self) -> None:
        """Raises EmbeddedError when a part has ended by itself."""
        ended = [service.name for service in self._services if service.has_ended]
        if self._postgres and self._postgres.has_ended:
            ended.append("PostgreSQL")
        if ended:
            raise EmbeddedError(f"{' and '.join(ended)} ended unexpectedly; what was accepted is kept")

    def wait(self, signals: Signals) -> None:
        """Returns after SIGINT or SIGTERM. Raises EmbeddedError when a part has ended by itself."""
        while not set(STOP) & set(signals.wait(5.0)[0]):
            self.refuse_ended_part()
            if self._cleanup:
                self._cleanup.check()

    def drain(self, config: Config, signals: Signals) -> None:
        """Web and workers finish what they have begun; another signal ends them at once, and jobs are requeued."""
        draining = [service for service in self._services if service.name != "the reference gateway"]
        for service in draining:
            service.begin_stop()
        deadline = time.monotonic() + config.worker_shutdown_grace_sec + STOP_MARGIN_SECONDS
        while not all(service.has_ended for service in draining) and time.monotonic() < deadline:
            if set(STOP) & set(signals.wait(1.0)[0]):
                for service in draining:
                    service.stop_at_once()
