"""What every request needs of its application: the configuration, the store, the connections, the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convertq.queue.config import Config
from convertq.queue.log.lines import Log
from convertq.queue.store.protocol import Store
from convertq.web.pool import Connections
from convertq.web.queue_status import QueueStatus
from convertq.web.replica import Replica
from flask import Flask, current_app

NAME = "convertq"


@dataclass(frozen=True)
class Web:
    config: Config
    store: Store
    connections: Connections
    replica: Replica | None
    status: QueueStatus
    log: Log
    openapi: dict[str, Any]

    def put_into(self, app: Flask) -> None:
        app.extensions[NAME] = self

    def open(self) -> None:
        """Called in each process after the fork: processes cannot share connections."""
        self.connections.open()
        if self.replica is not None:
            self.replica.open()

    def close(self) -> None:
        self.connections.close()
        if self.replica is not None:
            self.replica.close()


def web() -> Web:
    found: Web = current_app.extensions[NAME]
    return found
