"""The verdict: looks at rows, events, files, requests and processes from outside, and lists every violation."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import LiteralString
from uuid import UUID

import psycopg
from convertq.queue.store import open_store
from lxml import etree
from psycopg import sql

from tests.chaos.client import Client
from tests.chaos.cluster import MAX_ATTEMPTS, Cluster
from tests.chaos.faults import Injected
from tests.chaos.faulty_gateway import LIMITS, POISON, Call
from tests.chaos.history import replay
from tests.chaos.lost_attempts import lost_without_a_cause, marked_dead_too_soon
from tests.chaos.plan import Kind
from tests.chaos.storage import ChaosStorage
from tests.waiting import Row, eventually

CLAIM_SECONDS = 0.5  # that a claim may take
TABLES = ("jobs", "job_events", "job_progress", "job_dependencies", "servers", "circuit_breaker")


class Audit:
    """After the supervisors have been stopped. Each check is a generator of sentences, one for each violation."""

    def __init__(self, cluster: Cluster, client: Client, injected: Sequence[Injected]) -> None:
        self._cluster, self._client, self._injected = cluster, client, injected
        self._store = open_store(client.config)
        with cluster.connect() as conn:
            self.jobs: dict[UUID, Row] = {row["id"]: row for row in conn.execute("SELECT * FROM jobs")}
            self.events: defaultdict[UUID, list[Row]] = defaultdict(list)
            for event in conn.execute("SELECT * FROM job_events ORDER BY id"):
                self.events[event["job_id"]].append(event)
            self.servers: list[Row] = conn.execute("SELECT * FROM servers").fetchall()

    def violations(self) -> list[str]:
        with self._cluster.connect() as conn:
            return [
                *self._every_job_has_ended(),
                *self._every_cancel_took_effect(),
                *self._no_gateway_had_more_calls_than_its_limit(),
                *self._nothing_was_claimed_during_a_pause(),
                *self._every_history_is_legal(),
                *self._every_complete_job_has_its_one_whole_result(),
                *self._there_is_no_other_file(),
                *self._no_attempt_was_sent_twice(),
                *self._no_outage_cost_an_attempt(),
                *self._every_row_obeys_every_check(conn),
                *self._nothing_is_left_in_the_database(conn),
                *self._nothing_is_left_running(),
            ]

    def _every_job_has_ended(self) -> Iterator[str]:
        for job_id in self._client.submitted - self.jobs.keys():
            yield f"job {job_id} was submitted and is not there"
        for job_id, row in self.jobs.items():
            wanted = ("failed", "GW_4XX", False) if row["mapping"] == POISON else ("complete", None, False)
            found = (row["status"], row["error_code"], row["dead_letter"])
            if found != wanted and found != ("cancelled", None, False):
                yield f"job {job_id} ({row['mapping']}) ended as {found}, not {wanted}: {row['error_message']}"
            if row["attempt_count"] > MAX_ATTEMPTS:
                yield f"job {job_id} has {row['attempt_count']} attempts"

    def _every_cancel_took_effect(self) -> Iterator[str]:
        """What was acknowledged is in the history, and a cancelled job has no result."""
        for job_id, times in self._client.cancelled.items():
            recorded = sum(event["event_type"] == "cancelled" for event in self.events[job_id])
            if recorded < times:
                yield f"job {job_id} was cancelled {times} times, and its events show {recorded}"
        for job_id, row in self.jobs.items():
            if row["status"] == "cancelled" and (self._cluster.dirs.results / f"{job_id}.xml").exists():
                yield f"job {job_id} is cancelled, and has a result"

    def _no_gateway_had_more_calls_than_its_limit(self) -> Iterator[str]:
        """Calls of a server that was marked dead are not counted: its slots were freed, and it may only be cut off."""
        died = {row["id"]: row["stopped_at"].timestamp() for row in self.servers if row["status"] == "dead"}
        for excess in self._cluster.gateway.calls.excesses:
            counted = [
                call for call in excess.calls if died.get(self._server_of(call), math.inf) > excess.at
            ]  # fmt: skip
            if len(counted) > LIMITS[excess.gateway]:
                jobs = ", ".join(f"{call.job} of {self._server_of(call)}" for call in counted)
                yield f"the gateway {excess.gateway} had {len(counted)} calls at once: {jobs}"

    def _server_of(self, call: Call) -> str:
        begun = [event for event in self.events[UUID(call.job)] if event["event_type"] == "processing"]
        last = [event for event in begun if event["at"].timestamp() <= call.began]
        return str(last[-1]["meta"]["worker"]).rpartition("/")[0] if last else "?"

    def _nothing_was_claimed_during_a_pause(self) -> Iterator[str]:
        """A claim that began before the pause has its event a moment later; longer where the database was frozen."""
        frozen = [one for one in self._injected if one.fault.kind is Kind.FREEZE]
        claims = sorted(
            (event["at"].timestamp(), job_id)
            for job_id, events in self.events.items()
            for event in events
            if event["event_type"] == "processing"
        )
        for pause in self._client.pauses:
            if any(one.began - 1 <= pause.since <= one.ended + 1 for one in frozen):
                continue
            for at, job_id in claims:
                row = self.jobs[job_id]
                is_meant = (
                    pause.scope.gateway in (None, row["route"]) and pause.scope.owner in (None, row["owner_session_id"])
                )  # fmt: skip
                if is_meant and pause.since + CLAIM_SECONDS < at < pause.until:
                    yield f"job {job_id} was claimed {at - pause.since:.1f} s after {pause.scope} was paused"

    def _every_history_is_legal(self) -> Iterator[str]:
        for job_id, row in self.jobs.items():
            for problem in replay(self.events[job_id], row, MAX_ATTEMPTS):
                yield f"job {job_id} {problem}"

    def _every_complete_job_has_its_one_whole_result(self) -> Iterator[str]:
        for job_id, row in self.jobs.items():
            path = self._cluster.dirs.results / f"{job_id}.xml"
            if row["status"] != "complete":
                continue
            if row["result_path"] != str(path) and not self._cluster.storage:
                yield f"job {job_id} is complete with the result path {row['result_path']}"
            try:
                found = etree.fromstring(self._read_result(row)).get("correlation-id")
            except (OSError, etree.XMLSyntaxError) as error:
                yield f"job {job_id} is complete, and its result is not whole: {error}"
                continue
            if found != str(job_id):
                yield f"job {job_id} has the result of {found}"

    def _read_result(self, row: Row) -> bytes:
        """Raises OSError, also when an object does not have the checksum that was stored with it."""
        opened = self._store.open_result(row["id"], row["result_path"])
        with opened.file:
            content = opened.file.read()
        if self._cluster.storage and hashlib.sha256(content).hexdigest() != opened.etag:
            raise OSError("another checksum")
        return content

    def _there_is_no_other_object(self, storage: ChaosStorage) -> Iterator[str]:
        """Attempts and submissions that died leave objects that no row names: `cleanup` removes them."""
        orphans = storage.unlisted_objects(self.jobs)
        storage.clean_up(self._client.config)
        for location in storage.unlisted_objects(self.jobs):
            yield f"{location} is left after cleanup, and no row names it"
        print(f"\n{len(orphans)} objects were orphans before cleanup", flush=True)
        for path in [*self._cluster.dirs.results.iterdir(), *self._cluster.dirs.uploads.iterdir()]:
            yield f"{path.name} is in a directory of temporary files"

    def _there_is_no_other_file(self) -> Iterator[str]:
        """A source without a row is what a submission leaves that was cut off: allowed, and `cleanup` removes it."""
        if self._cluster.storage:
            yield from self._there_is_no_other_object(self._cluster.storage)
            return
        complete = {f"{job_id}.xml" for job_id, row in self.jobs.items() if row["status"] == "complete"}
        for path in self._cluster.dirs.results.iterdir():
            if path.name not in complete:
                yield f"{path.name} is in the result directory, without a complete job"
        for path in self._cluster.dirs.uploads.iterdir():
            if not re.fullmatch(r"[0-9a-f-]{36}\.pdf", path.name):
                yield f"{path.name} is in the upload directory"

    def _no_attempt_was_sent_twice(self) -> Iterator[str]:
        """An attempt begins with one `processing` event, and makes one request at most."""
        sent = Counter(request.correlation_id for request in self._cluster.gateway.requests)
        for correlation_id, requests in sent.items():
            begun = sum(event["event_type"] == "processing" for event in self.events[UUID(correlation_id)])
            if requests > begun:
                yield f"job {correlation_id} was sent {requests} times in {begun} attempts"

    def _no_outage_cost_an_attempt(self) -> Iterator[str]:
        yield from marked_dead_too_soon(self.servers, self._injected)
        for job_id, events in self.events.items():
            for problem in lost_without_a_cause(events, self._injected, self._cluster.host_of):
                yield f"job {job_id} {problem}"

    def _every_row_obeys_every_check(self, conn: psycopg.Connection[Row]) -> Iterator[str]:
        checks = conn.execute(
            """SELECT conname AS name, conrelid::regclass::text AS place, pg_get_expr(conbin, conrelid) AS rule
                 FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text = ANY (%s)""",
            [list(TABLES)],
        ).fetchall()
        if len(checks) < 10:
            yield f"only {len(checks)} CHECKs were found"
        for check in checks:
            broken = sql.SQL("SELECT count(*) AS n FROM {} WHERE NOT ({})").format(
                sql.Identifier(check["place"]), sql.SQL(check["rule"])
            )
            if count := one(conn, broken):
                yield f"{count} rows of {check['place']} break {check['name']}"

    def _nothing_is_left_in_the_database(self, conn: psycopg.Connection[Row]) -> Iterator[str]:
        for what, query in LEFTOVERS.items():
            try:
                eventually(lambda query=query: one(conn, query) == 0)  # type: ignore[misc]
            except AssertionError:
                yield f"{one(conn, query)} {what}"

    def _nothing_is_left_running(self) -> Iterator[str]:
        for host in self._cluster.hosts:
            for process in host.started:
                for left in process.end():
                    yield f"still running: {left}"


OTHERS = "pid <> pg_backend_pid() AND pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend')"
LEFTOVERS: dict[str, LiteralString] = {
    "connections left": "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name LIKE 'convertq:%'",
    "locks left": f"SELECT count(*) AS n FROM pg_locks WHERE {OTHERS}",
    "prepared transactions left": "SELECT count(*) AS n FROM pg_prepared_xacts",
    "progress rows left": "SELECT count(*) AS n FROM job_progress",
    "supervisors still called active": "SELECT count(*) AS n FROM servers WHERE status IN ('active', 'draining')",
    "slots of gateways left": "SELECT count(*) AS n FROM gateway_slots WHERE holder IS NOT NULL",
    "pauses left": "SELECT count(*) AS n FROM pauses",
    "trials of the breaker left": "SELECT count(*) AS n FROM circuit_breaker WHERE trial_job IS NOT NULL",
}


def one(conn: psycopg.Connection[Row], query: LiteralString | sql.Composed) -> int:
    row = conn.execute(query).fetchone()
    assert row
    return int(row["n"])
