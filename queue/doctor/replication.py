"""Checks of failover: who is the primary, whether commits are synchronous, and how far the replica is behind."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import psycopg
from convertq.queue.database.connection import connect
from convertq.queue.database.database import Database
from convertq.queue.database.url import DatabaseUrl
from convertq.queue.doctor.finding import CheckContext, Finding, bad, ok, warn
from convertq.queue.errors import one_line
from convertq.queue.quantities import counted, size
from convertq.queue.wal_position import MAX_BEHIND_SECONDS, read_position

APPLICATION_NAME = "convertq:cli"
SYNCHRONOUS = ("sync", "quorum")
LOCAL_MODES = ("off", "local")
LOOK_AGAIN_SECONDS = 0.02


def check_replication(context: CheckContext) -> Finding:
    info = context.database.connection.info
    where = f"{info.host or 'the local socket'}:{info.port}"
    if context.server["is_standby"]:
        return bad("replication", f"{where} is a standby", "name the primary in DATABASE_URL")
    row = context.database.run("inspect_replication")[0]
    standbys = row["standbys"]
    summary = f"{where} is the primary, {_in_words(standbys)}"
    if row["commit_mode"] == "off":
        what = f"{summary}; commits do not wait for the disk (synchronous_commit = off)"
        return warn("replication", what, "a crash loses acknowledged jobs: set synchronous_commit = on")
    if not row["synchronous_names"] or row["commit_mode"] in LOCAL_MODES:
        return ok("replication", f"{summary}; commits are {'asynchronous' if standbys else 'local'}")
    if not any(each["sync_state"] in SYNCHRONOUS for each in standbys if each["sync_state"]) and _are_visible(standbys):
        what = f"{summary}; commits are synchronous, and wait: no synchronous standby is connected"
        return bad("replication", what, "start the standby, or change synchronous_standby_names")
    return ok("replication", f"{summary}; commits are synchronous")


def _are_visible(standbys: list[Mapping[str, Any]]) -> bool:
    return all(each["state"] is not None for each in standbys)


def _in_words(standbys: list[Mapping[str, Any]]) -> str:
    if not standbys:
        return "without a standby"
    if not _are_visible(standbys):
        return f"with {counted(len(standbys), 'follower')} that this role may not look into"
    return f"with {', '.join(_describe(each) for each in standbys)}"


def _describe(standby: Mapping[str, Any]) -> str:
    behind = standby["behind_bytes"]
    lag = f", {standby['behind_seconds']:.1f} s" if behind and standby["behind_seconds"] else ""
    far = "" if behind is None else f", {size(max(0, behind))}{lag} behind"
    return f"{standby['name'] or 'a standby'} ({standby['sync_state']}, {standby['state']}{far})"


def check_direct(context: CheckContext) -> list[Finding]:
    url = context.config.database_direct_url
    if url is None:
        return []
    try:
        database = _open(url)
    except psycopg.Error as error:
        return [bad("direct", f"{url.shown}: {one_line(str(error))}", "check DATABASE_DIRECT_URL")]
    try:
        database.check_limits()
        if database.connection.is_pooled:
            what = f"{url.shown} leads through a transaction pooler too"
            return [bad("direct", what, "name PostgreSQL itself in DATABASE_DIRECT_URL")]
        return [ok("direct", f"{url.shown} is PostgreSQL itself")]
    finally:
        database.close()


def check_replica(context: CheckContext) -> list[Finding]:
    """Measures how long the replica takes to replay what the primary has written by now."""
    url = context.config.database_read_url
    if url is None:
        return []
    remedy = "the web reads from the primary meanwhile; see the log of that server"
    try:
        database = _open(url)
    except psycopg.Error as error:
        return [warn("replica", f"{url.shown}: {one_line(str(error))}", remedy)]
    try:
        return [_measure(context, url, database, remedy)]
    finally:
        database.close()


def _measure(context: CheckContext, url: DatabaseUrl, replica: Database, remedy: str) -> Finding:
    wanted, began = read_position(context.database)[0] or 0, time.monotonic()
    while True:
        position, is_standby = read_position(replica)
        if not is_standby:
            what = f"{url.shown} is not a standby: the web does not read from it"
            return warn("replica", what, "name a standby in DATABASE_READ_URL")
        seconds, missing = time.monotonic() - began, wanted - (position or 0)
        if missing <= 0:
            return ok("replica", f"{url.shown} is {seconds:.2f} s behind the primary at most")
        if seconds > MAX_BEHIND_SECONDS:
            what = f"{url.shown} is more than {MAX_BEHIND_SECONDS:g} s behind the primary: {size(missing)} are missing"
            return warn("replica", what, remedy)
        time.sleep(LOOK_AGAIN_SECONDS)


def _open(url: DatabaseUrl) -> Database:
    return Database(connect(url, APPLICATION_NAME), url.schema)
