"""The demo's stack: an embedded PostgreSQL, the reference gateway and a worker pool, up together and gone together."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from importlib.resources import files as resource_files
from pathlib import Path

from convertq.embedded.postgres import FAST, EmbeddedPostgres
from convertq.embedded.service import Service
from convertq.queue.config import Config, read_config
from convertq.queue.database.connection import connect
from convertq.queue.database.migrations import migrate
from convertq.queue.settings import SETTINGS

#: shown being retried: the gateway answers its first request with 502
RETRIED = "oficina.pdf"
BUCKET = "convertq-demo"


def samples() -> list[Path]:
    folder = Path(str(resource_files("convertq.gateway") / "samples"))
    return sorted(folder.glob("*.pdf"))


class Stack:
    """Everything below one directory; the result files stay there when the rest is gone."""

    def __init__(self, *, on_s3: bool = False) -> None:
        self.on_s3 = on_s3
        self.home = Path(tempfile.mkdtemp(prefix="convertq-demo-"))
        self.environment: dict[str, str] = {}

    @contextlib.contextmanager
    def up(self) -> Iterator[Config]:
        with contextlib.ExitStack() as running:
            database = running.enter_context(EmbeddedPostgres(settings={**FAST, "autovacuum": "on"}))
            gateway_url = running.enter_context(self._gateway())
            self.environment = self._environment(database.url(), gateway_url)
            if self.on_s3:
                self.environment |= self._start_storage(running)
            config = read_config(self.environment, needs_gateway=True)
            with connect(config.database, "convertq:demo") as connection:
                migrate(connection, config.database.schema)
            running.enter_context(self._service("the worker pool", "worker", "run", log="worker.log"))
            yield config

    def _start_storage(self, running: contextlib.ExitStack) -> dict[str, str]:
        from convertq.embedded.s3 import EmbeddedS3  # needs convertq[s3]

        storage = running.enter_context(EmbeddedS3())
        storage.make_bucket(BUCKET)
        return {**storage.environment, "STORAGE_URL": f"s3://{BUCKET}/demo"}

    def _environment(self, database_url: str, gateway_url: str) -> dict[str, str]:
        """Nothing of the caller's own settings: the demo must not touch a real queue."""
        chosen = {
            "DATABASE_URL": database_url,
            "GATEWAY_URL": gateway_url,
            "UPLOADS_DIR": str(self.home / "uploads"),
            "RESULTS_DIR": str(self.home / "results"),
            "WORKER_ENVIRONMENT": "demo",
            "WORKER_SHUTDOWN_GRACE_SEC": "1",
            "RETRY_BASE_DELAY_MS": "1500",
            "RETRY_JITTER_MAX_MS": "500",
            "RESULTS_MIN_FREE_MB": "1",
            "LOG_FORMAT": "json",
            "ADMIN_TOKEN": secrets.token_hex(16),
        }
        ours = {setting.variable for setting in SETTINGS}
        kept = {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("AWS_")}
        return kept | chosen

    @contextlib.contextmanager
    def _gateway(self) -> Iterator[str]:
        retried = next(path for path in samples() if path.name == RETRIED)
        digest = hashlib.sha256(retried.read_bytes()).hexdigest()
        faults = ("--fault", f"fail:502@first=1@sha256={digest}", "--fault", "delay:0.4")
        command = ("gateway", "run", "--port", "0", *faults)
        with self._service("the reference gateway", *command, log="gateway.log") as gateway:
            yield gateway.address()

    @contextlib.contextmanager
    def web(self) -> Iterator[str]:
        """The pages and the API, while the rest is up; gives their address."""
        web = ("web", "run", "--port", "0", "--processes", "1")
        with self._service(
            "the web server", *web, log="web.log", stop=signal.SIGQUIT
        ) as server:  # no grace for visitors
            yield server.address()

    def _service(self, name: str, *arguments: str, log: str, stop: signal.Signals = signal.SIGTERM) -> Service:
        return Service(name, *arguments, environment=self.environment or None, log=self.home / log, stop=stop)
