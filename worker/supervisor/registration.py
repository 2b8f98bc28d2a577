"""The supervisor's row in `servers`: its id, registration and heartbeat."""

from __future__ import annotations

import json
import os
import secrets
import socket

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.fair_share import set_fair_share
from convertq.queue.gateway import ANY_MAPPING, digest_of
from convertq.queue.log.lines import Log
from convertq.queue.version import VERSION
from convertq.worker.supervisor.status_table import WorkerStatusTable


class ServerRegistration:
    def __init__(self, config: Config, status_table: WorkerStatusTable, log: Log) -> None:
        self._config, self._status_table, self._log = config, status_table, log
        self.is_registered = False
        self.concurrency = config.worker_concurrency.least  # how many workers the pool has now
        self.choose_new_id()

    def choose_new_id(self) -> None:
        """The id is never one that was used before: a job leased by a server that is gone must not look alive."""
        self.is_registered = False
        host = socket.gethostname()[:100]
        self._status_table.server_id = self._log.server = f"{host}:{os.getpid()}:{secrets.token_hex(4)}"

    def register(self, database: Database) -> None:
        while not self._insert_row(database):
            # An earlier registration under this id was committed, its answer was lost, and it was marked dead since.
            self.choose_new_id()
        set_fair_share(database, self._config)
        self.is_registered = True

    def _insert_row(self, database: Database) -> bool:
        registered = database.one(
            "register_server", server=self._status_table.server_id, hostname=socket.gethostname(), pid=os.getpid(),
            version=VERSION, environment=self._config.worker_environment, concurrency=self.concurrency,
            gateways=self._declared_gateways(), gateways_digest=digest_of(self._config.gateways),
            takes_turns=self._config.fair_share, owner_max_running=self._config.owner_max_running,
        )  # fmt: skip
        return registered is not None

    def _declared_gateways(self) -> str:
        """The first gateway gets the jobs whose mapping nobody knows: its workers refuse them."""
        declared = [gateway.declared for gateway in self._config.gateways]
        declared[0]["mappings"].append(ANY_MAPPING)
        return json.dumps(declared)

    def beat(self, database: Database) -> str | None:
        """Returns the state of the worst breaker; None when this server was marked dead while it was stopped."""
        row = database.one(
            "heartbeat_server", server=self._status_table.server_id, concurrency=self.concurrency,
            longest_gap=self._config.heartbeat_gap_sec, gateways=self._config.gateway_names,
        )  # fmt: skip
        return str(row["breaker"]) if row else None

    def drain(self, database: Database) -> None:
        database.run("drain_server", server=self._status_table.server_id)

    def stop(self, database: Database) -> None:
        database.run("stop_server", server=self._status_table.server_id)
