"""PgBouncer in transaction mode before the server of a scene."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from convertq.embedded.postgres import free_port

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SERVER_CONNECTIONS = int(os.environ.get("BENCH_FLEET_CONNECTIONS", "32"))
MOST_CLIENTS = 4000
READY_WITHIN_SECONDS = 10.0
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server_port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
listen_backlog = 2000
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = {clients}
log_connections = 0
log_disconnections = 0
logfile = {home}/log
pidfile = {home}/pid
"""


class Pooler(NamedTuple):
    port: int
    pid: int


@contextmanager
def pgbouncer(server_port: int) -> Iterator[Pooler]:
    assert PROGRAM, "pgbouncer is not on PATH: apt-get install pgbouncer"
    with tempfile.TemporaryDirectory(prefix="convertq-pgbouncer-", dir="/tmp") as folder:
        home, port = Path(folder), free_port()
        home.chmod(0o777)
        path = home / "pgbouncer.ini"
        path.write_text(
            SETTINGS.format(
                server_port=server_port, port=port, home=home, connections=SERVER_CONNECTIONS, clients=MOST_CLIENTS
            )
        )
        as_nobody = ["-u", "nobody"] if os.geteuid() == 0 else []
        process = subprocess.Popen([PROGRAM, *as_nobody, str(path)], stderr=subprocess.DEVNULL)
        try:
            _wait_until_it_listens(port)
            yield Pooler(port, process.pid)
        finally:
            process.kill()  # at a signal it would wait for its clients
            process.wait(10)


def _wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("pgbouncer does not listen")
