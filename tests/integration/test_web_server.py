"""The command `convertq web run`: how it starts, on whose socket, what it survives, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import requests
from urllib3.util.wait import wait_for_read

from tests.conftest import Environment, Web
from tests.processes import CONSOLE_SCRIPT, run
from tests.waiting import eventually
from tests.web_client import PDF, Site


def test_it_says_where_it_listens_and_ends_with_sigterm(site: Site) -> None:
    assert requests.get(f"{site.url}/health", timeout=10).json() == {"status": "alive"}
    assert site.process.stop() == 0


def test_an_open_connection_of_a_browser_does_not_delay_the_end(site: Site) -> None:
    visitor = site.visitor()
    visitor.get("/health")
    assert site.process.stop(timeout=20) == 0  # less than GRACE_SECONDS, 30


def test_a_running_request_is_finished_before_the_end(site: Site) -> None:
    visitor = site.visitor()
    host, _, port = site.url.removeprefix("http://").partition(":")
    body = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + PDF + b"\r\n--x--\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as line:
        head = (
            f"POST /api/jobs HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\nContent-Length: {len(body)}\r\n"
            f"Cookie: owner_session_id={visitor.owner}\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
        )
        line.sendall(head.encode() + body[:50])
        eventually(lambda: visitor.get("/health").status_code == 200)  # it was accepted: this came later
        site.process.send(signal.SIGTERM)
        site.process.wait_for_event("web", what="Handling signal: term")
        line.sendall(body[50:])
        assert line.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert site.process.wait() == 0


def test_who_came_just_before_the_end_is_still_answered(web: Web) -> None:
    """A connection of its own was taken before the signal, and the request comes after it."""
    site = web(WEB_PROCESSES=1)
    host, _, port = site.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        assert requests.get(f"{site.url}/health", timeout=10).status_code == 200  # came later: that one is accepted
        site.process.send(signal.SIGTERM)
        site.process.wait_for_event("web", what="Handling signal: term")
        assert not wait_for_read(line, 0.3), "it was cut"
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert site.process.wait() == 0


def test_a_killed_process_is_replaced(web: Web) -> None:
    site = web(WEB_PROCESSES=2)
    eventually(lambda: len(site.process.children()) == 2, what="two processes")
    first = site.process.children()
    os.kill(first[0], signal.SIGKILL)
    eventually(lambda: len(set(site.process.children()) - set(first)) == 1, what="another in its place")
    for _ in range(10):
        assert requests.get(f"{site.url}/ready", timeout=10).status_code == 200


def test_when_the_first_process_is_killed_the_others_end(web: Web) -> None:
    site = web(WEB_PROCESSES=2)
    eventually(lambda: len(site.process.children()) == 2, what="two processes")
    site.process.send(signal.SIGKILL)
    eventually(lambda: not site.process.family(), what="nothing is left")


def test_an_address_in_use_is_said_in_one_line(environment: Environment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("web", "run", "--port", port, environment=environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"convertq: cannot listen on 127.0.0.1:{port}: address already in use\n"


def test_a_wrong_setting_stops_the_start(environment: Environment) -> None:
    done = run("web", "run", environment=environment(ADMIN_TOKEN="a b", WEB_PORT="0", SESSION_MAX_ACTIVE="x"))
    assert done.returncode == 78
    assert [line.split()[1].rstrip(":") for line in done.stderr.splitlines()] == [
        "WEB_PORT", "SESSION_MAX_ACTIVE", "ADMIN_TOKEN",
    ]  # fmt: skip
    assert "a b" not in done.stderr


def test_the_token_is_masked_where_settings_are_shown(environment: Environment) -> None:
    shown = run("config", environment=environment(ADMIN_TOKEN="very-secret-token"))
    assert shown.returncode == 0
    assert "ADMIN_TOKEN" in shown.stdout
    assert "very-secret" not in shown.stdout


FORM = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + PDF + b"\r\n--x--\r\n"
#: what systemd does for a socket unit: the socket is descriptor 3, and two variables say so
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_it_takes_over_the_socket_of_systemd(environment: Environment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, str(listener.fileno()), CONSOLE_SCRIPT, "web", "run"],
            env=environment(WEB_PROCESSES=1), pass_fds=[listener.fileno()], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            # asked before it is ready: the socket is there, and the request waits in it
            assert requests.get(f"{url}/ready", timeout=20).status_code == 200
            assert process.stdout
            assert process.stdout.readline() == "listening on the socket of systemd\n"
        finally:
            process.terminate()
            process.communicate(timeout=15)
        assert process.returncode == 0


def test_on_a_socket_with_a_path_a_proxy_is_served_and_believed(environment: Environment, tmp_path: Path) -> None:
    place = tmp_path / "web.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, str(listener.fileno()), CONSOLE_SCRIPT, "web", "run"],
            env=environment(WEB_PROCESSES=1), pass_fds=[listener.fileno()], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(20)
                line.connect(str(place))
                line.sendall(
                    b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n"
                    b"X-Forwarded-Proto: https\r\nContent-Type: multipart/form-data; boundary=x\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(FORM)
                )
                for at in range(0, len(FORM), 40):
                    line.sendall(FORM[at : at + 40])
                answer = b"".join(iter(lambda: line.recv(65536), b""))
        finally:
            process.terminate()
            process.communicate(timeout=15)
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert b"; Secure;" in answer


def test_what_changes_or_goes_wrong_is_one_line_of_the_log_and_a_look_is_none(site: Site) -> None:
    visitor = site.visitor()
    for route in ("/health", "/ready", "/", "/api/jobs", "/api/status"):
        assert visitor.get(route).status_code == 200
    visitor.submit()
    visitor.get(f"/api/jobs/{uuid4()}?secret=1")
    line = site.process.wait_for_event("request", http_status=404)
    assert line["method"] == "GET"
    assert "secret" not in json.dumps(line)
    assert {"timestamp", "level", "server", "worker", "environment", "path", "duration_ms", "bytes"} <= line.keys()
    assert [line["http_status"] for line in site.process.events("request")] == [201, 404]


def test_with_debug_every_request_is_a_line(web: Web) -> None:
    site = web(LOG_LEVEL="DEBUG")
    site.visitor().get("/health")
    site.process.wait_for_event("request", path="/health", http_status=200)
