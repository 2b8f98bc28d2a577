"""Only the web is cooperative: every other command runs with real threads and blocking calls."""

from __future__ import annotations

import socket
import subprocess
import sys

import psycopg
import pytest
from convertq.queue.database.url import parse_database_url
from convertq.web import pool

EVERYTHING_ELSE = """
import importlib, pkgutil, sys
for name in ("cli", "embedded", "gateway", "queue", "sql", "worker"):
    package = importlib.import_module(f"convertq.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"convertq.{name}."):
        importlib.import_module(module.name)
print("gevent" in sys.modules, "gunicorn" in sys.modules)
"""
PATCHED = """
from convertq.web.gevent_setup import patch_for_gevent
patch_for_gevent()
from gevent.monkey import is_module_patched
import psycopg.waiting
print(is_module_patched("socket"), psycopg.waiting.wait.__name__ != "wait_c")
"""
TOO_LATE = """
import psycopg
from convertq.web.gevent_setup import patch_for_gevent
patch_for_gevent()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_no_other_command_loads_gevent() -> None:
    assert run(EVERYTHING_ELSE).stdout == "False False\n"


def test_the_web_waits_for_the_database_cooperatively() -> None:
    assert run(PATCHED).stdout == "True True\n"


def test_it_refuses_to_begin_after_psycopg_was_loaded() -> None:
    done = run(TOO_LATE)
    assert done.returncode == 1
    assert "psycopg was imported before patch_for_gevent" in done.stderr


def test_a_silent_name_server_is_not_left_to_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq would block every request of the process meanwhile."""

    def silent(*arguments: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with pytest.raises(psycopg.OperationalError, match=r"^could not resolve a\.example: the name server"):
        pool.resolve_names(parse_database_url("postgresql://a.example,db.example:5432/x"))
    for local in ("?host=/run/postgresql", "", "?hostaddr=192.0.2.1&host=db.example"):
        pool.resolve_names(parse_database_url(f"postgresql:///x{local}"))
