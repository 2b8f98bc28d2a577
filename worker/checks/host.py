"""Checks of this host: its settings, directories, disk, descriptors, and its way to the gateway."""

from __future__ import annotations

import os
import resource
import stat
import time
from pathlib import Path
from urllib.parse import urlsplit

import requests
from convertq.worker.checks.finding import Finding, Look, bad, ok, warn
from urllib3.exceptions import ProtocolError

MB = 1024 * 1024
FEW_INODES = 1000
GATEWAY_TIMEOUT = 5.0  # s
#: descriptors: what a process has open anyway, and what each worker costs its supervisor (pipes, inherited files)
DESCRIPTORS, DESCRIPTORS_A_WORKER = 64, 8


def check_heartbeat(look: Look) -> Finding:
    every, timeout = look.config.worker_heartbeat_sec, look.config.worker_heartbeat_timeout_sec
    said = f"every {every} s, silent for {timeout} s is dead"
    if timeout <= every:
        return warn("heartbeat", said, "make WORKER_HEARTBEAT_TIMEOUT_SEC at least three times WORKER_HEARTBEAT_SEC")
    return ok("heartbeat", said)


def check_directories(look: Look) -> list[Finding]:
    named = {"UPLOADS_DIR": look.files.uploads, "RESULTS_DIR": look.files.results}
    return [_check_directory(variable, path) for variable, path in named.items()]


def _check_directory(variable: str, path: Path) -> Finding:
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        remedy = f"mkdir -p {path} (or convertq doctor --fix)"
        return bad("directories", f"{variable}: {path} is not there", remedy, _make_directories)
    except OSError as error:
        what = f"{variable}: {path} cannot be seen: {(error.strerror or str(error)).lower()}"
        return bad("directories", what, f"let user {os.geteuid()} enter the directories above it")
    if not is_directory:
        return bad("directories", f"{variable}: {path} is not a directory", f"name a directory in {variable}")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return bad("directories", f"{variable}: {path} is not writable here", f"chown {os.geteuid()} {path}")
    return ok("directories", f"{variable}: {path} is writable")


def _make_directories(look: Look) -> str:
    look.files.make_directories()
    return "made the directory"


def check_disk(look: Look) -> Finding:
    wanted = look.config.results_min_free_mb
    try:
        space = os.statvfs(look.files.results)
    except OSError as error:
        return bad("disk", f"RESULTS_DIR: {(error.strerror or '').lower()}", "see directories")
    free = space.f_bavail * space.f_frsize // MB
    said = f"{free} MB free for results, {wanted} MB wanted"
    if free < wanted:
        return bad("disk", f"{said}: this host claims nothing", "make room, or lower RESULTS_MIN_FREE_MB")
    if space.f_files and not space.f_favail:
        return bad("disk", "no file can be made: the file system has no inode left", "remove files: convertq cleanup")
    if space.f_files and space.f_favail < FEW_INODES:
        return warn("disk", f"{said}, but room for only {space.f_favail} more files", "remove files: convertq cleanup")
    if free < 2 * wanted:
        return warn("disk", said, "make room before this host stops claiming: convertq cleanup")
    return ok("disk", said)


def check_descriptors(look: Look) -> Finding:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = DESCRIPTORS + DESCRIPTORS_A_WORKER * look.config.worker_concurrency
    said = f"{allowed} open files allowed, {needed} needed for {look.config.worker_concurrency} workers"
    if 0 <= allowed < needed:  # -1: no limit
        return bad("descriptors", said, f"ulimit -n {needed}, or LimitNOFILE={needed} in the unit")
    return ok("descriptors", said)


def check_gateway(look: Look) -> Finding:
    if not look.config.gateway_url:
        return warn("gateway", "GATEWAY_URL is not set", "set it where workers run; elsewhere it is not needed")
    asked = time.monotonic()
    try:
        status = _ask_health(look)
    except requests.RequestException as error:
        where = urlsplit(look.config.gateway_url)
        what = f"no answer from {where.hostname}:{where.port or where.scheme}: {_in_words(error)}"
        return bad("gateway", what, "check GATEWAY_URL, and that the gateway runs")
    took = f"{(time.monotonic() - asked) * 1000:.0f} ms"
    path = look.config.gateway_health_path
    if 200 <= status < 300:
        return ok("gateway", f"healthy: {path} answers {status} in {took}")
    if status in (404, 405):
        return ok("gateway", f"it answers, but has no {path} ({status}): counts as healthy")
    return bad("gateway", f"{path} answers {status}", "look at the gateway's log, or set GATEWAY_HEALTH_PATH")


def _in_words(error: requests.RequestException) -> str:
    """Never the error itself: it shows the URL, which may hold credentials."""
    if isinstance(error, requests.exceptions.SSLError):
        return "TLS or its certificate was refused"
    if isinstance(error, requests.Timeout):
        return f"nothing within {GATEWAY_TIMEOUT:g} s"
    if error.args and isinstance(error.args[0], ProtocolError):  # it was reached
        return "not an HTTP answer"
    return "it cannot be reached"


def _ask_health(look: Look) -> int:
    url = f"{look.config.gateway_url}{look.config.gateway_health_path}"
    with requests.get(url, timeout=GATEWAY_TIMEOUT, allow_redirects=False, stream=True) as response:
        return response.status_code
