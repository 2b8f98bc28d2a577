"""Checks of this host: its settings, directories, disk, descriptors, and its way to the gateway."""

from __future__ import annotations

import resource
import time
from urllib.parse import urlsplit

import requests
from convertq.queue.doctor.finding import CheckContext, Finding, bad, ok, warn
from convertq.queue.gateway import DEFAULT_GATEWAY, Gateway
from urllib3.exceptions import ProtocolError

GATEWAY_TIMEOUT_SECONDS = 5.0
#: File descriptors that any process has open, and that a supervisor needs for each worker (pipes, inherited files).
BASE_DESCRIPTORS, DESCRIPTORS_PER_WORKER = 64, 8


def check_heartbeat(context: CheckContext) -> Finding:
    every, timeout = context.config.worker_heartbeat_sec, context.config.worker_heartbeat_timeout_sec
    summary = f"every {every} s, silent for {timeout} s is dead"
    if timeout <= every:
        return warn("heartbeat", summary, "make WORKER_HEARTBEAT_TIMEOUT_SEC at least three times WORKER_HEARTBEAT_SEC")
    return ok("heartbeat", summary)


def check_directories(context: CheckContext) -> list[Finding]:
    return context.store.check_access()


def check_disk(context: CheckContext) -> Finding:
    return context.store.check_space()


def check_descriptors(context: CheckContext) -> Finding:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = context.config.worker_concurrency.most
    needed = BASE_DESCRIPTORS + DESCRIPTORS_PER_WORKER * workers
    summary = f"{allowed} open files allowed, {needed} needed for {workers} workers"
    if 0 <= allowed < needed:  # -1: no limit
        return bad("descriptors", summary, f"ulimit -n {needed}, or LimitNOFILE={needed} in the unit")
    return ok("descriptors", summary)


def check_gateway(context: CheckContext) -> list[Finding]:
    if not (context.config.gateways_file or context.config.gateway_url):
        return [warn("gateway", "GATEWAY_URL is not set", "set it where workers run; elsewhere it is not needed")]
    return [_check_one_gateway(gateway) for gateway in context.config.gateways]


def _check_one_gateway(gateway: Gateway) -> Finding:
    is_default = gateway.name == DEFAULT_GATEWAY
    name = "gateway" if is_default else f"gateway {gateway.name}"
    started_at = time.monotonic()
    try:
        status = _request_health(gateway)
    except requests.RequestException as error:
        where = urlsplit(gateway.url)
        what = f"no answer from {where.hostname}:{where.port or where.scheme}: {_in_words(error)}"
        setting = "GATEWAY_URL" if is_default else "its url in GATEWAYS_FILE"
        return bad(name, what, f"check {setting}, and that the gateway runs")
    took = f"{(time.monotonic() - started_at) * 1000:.0f} ms"
    path = gateway.health_path
    if 200 <= status < 300:
        return ok(name, f"healthy: {path} answers {status} in {took}")
    if status in (404, 405):
        return ok(name, f"it answers, but has no {path} ({status}): counts as healthy")
    setting = "GATEWAY_HEALTH_PATH" if is_default else "its health_path"
    return bad(name, f"{path} answers {status}", f"look at the gateway's log, or set {setting}")


def _in_words(error: requests.RequestException) -> str:
    """The error itself is never shown: it quotes the URL, which may hold credentials."""
    if isinstance(error, requests.exceptions.SSLError):
        return "TLS or its certificate was refused"
    if isinstance(error, requests.Timeout):
        return f"nothing within {GATEWAY_TIMEOUT_SECONDS:g} s"
    if error.args and isinstance(error.args[0], ProtocolError):  # it was reached
        return "not an HTTP answer"
    return "it cannot be reached"


def _request_health(gateway: Gateway) -> int:
    url = f"{gateway.url}{gateway.health_path}"
    with requests.get(url, timeout=GATEWAY_TIMEOUT_SECONDS, allow_redirects=False, stream=True) as response:
        return response.status_code
