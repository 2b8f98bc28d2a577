"""Claiming: where the next claim of a worker starts in the index, and what it learns besides its jobs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.gateway import DEFAULT_GATEWAY
from convertq.queue.job import ClaimedJob
from convertq.queue.scan_budget import START, Position, Scan, ScanBudget
from psycopg.rows import DictRow

#: How often a busy worker checks whether retries have become due. A worker without a job checks with every claim.
CHECK_FOR_DUE_RETRIES_EVERY_SECONDS = 0.2
#: The parameters with which complete_and_claim completes nothing, and those with which it claims nothing.
NOTHING_FINISHED = {"finished": "[]", "retention_days": 0}
NO_CLAIM = {
    "server": "", "holder": "", "lease_ttl": 0, "wanted": 0, "count_up_to": 0, "check_for_due": False,
    "due_after": START.created_at, "excluded": "{}", **START.parameters,
}  # fmt: skip


class QueueState:
    """What a claim has learnt about the queue."""

    def __init__(self, row: DictRow) -> None:
        self.breaker: str = row["breaker"]
        self.gateway_is_paused: bool = row["gateway_paused"]
        self.probe_is_due: bool = row["probe_is_due"]
        self.is_limited: bool = row["is_limited"]  # a worker needs a slot of this gateway
        self.server_is_active: bool = row["server_active"]
        self.left_over: int = row["left_over"]  # jobs that could be claimed too, as far as they were counted
        self.retry_is_due: bool = row["retry_is_due"]


@dataclass(frozen=True)
class Claim:
    """The answer to a claim."""

    jobs: list[ClaimedJob]  # in the order in which they are to be converted
    state: QueueState
    counted_up_to: int = 1  # of `state.left_over`; 0: nothing was counted
    route: str = DEFAULT_GATEWAY  # the gateway whose jobs were claimed

    @property
    def job(self) -> ClaimedJob | None:
        """The first one; None when nothing could be claimed."""
        return self.jobs[0] if self.jobs else None


class ClaimRequest(NamedTuple):
    """The parameters of a claim, and what is needed to read its answer."""

    holder: str
    requested_at: float  # by the monotonic clock, before the statement: the lease never seems longer than it is
    start: Position
    parameters: dict[str, Any]


class ClaimCursor:
    """The claims of one worker from one gateway on one connection. It remembers where to start and when to check for
    due retries."""

    def __init__(
        self, database: Database, config: Config, scans: ScanBudget | None = None, route: str = DEFAULT_GATEWAY
    ) -> None:
        self.database, self.route = database, route
        self.excluded: list[str] = []  # mappings of this route that only other servers know
        self._lease_seconds = config.worker_lease_ttl_sec
        self._scans = scans or ScanBudget()
        self._check_for_due_at = 0.0
        self._promoted = 0  # retries that the last statement made claimable
        self.promoted_in_all = 0

    def claim_job(self, server: str, holder: str, *, known: bool = False) -> Claim:
        """`known` means that a job is believed to be there, because of a wake-up for example.

        Where scanning the index is expensive, a claim may find nothing although there is a job before its start. The
        next scan from the beginning finds that job.
        """
        start = self._choose_start()
        while True:
            request = self._request_from(start, server, holder, wanted=1, count_up_to=1)
            statement = ("complete_and_claim", {**request.parameters, **NOTHING_FINISHED})
            claim = self.accept(request, self.database.run_prepared(statement))
            if claim.jobs:
                return claim
            known = known or self._promoted > 0
            if start != START and known and self._scans.allows_scan(time.monotonic(), known=True):
                start = START
            elif self._promoted:
                start = self._choose_start()
            else:
                if known and start != START:
                    self._scans.record_known_job()
                return claim

    def request(self, server: str, holder: str, wanted: int, count_up_to: int) -> ClaimRequest:
        """A claim that a completion takes along; `accept` reads its answer. What is left is counted as rarely as
        retries are checked for."""
        return self._request_from(self._choose_start(), server, holder, wanted, count_up_to, counts_rarely=True)

    def accept(self, request: ClaimRequest, rows: list[DictRow]) -> Claim:
        """Reads the rows of a claim that is committed, and makes retries claimable that it found to be due."""
        if len(rows) > 1:
            rows.sort(key=itemgetter("place"))
        state, counted_up_to = QueueState(rows[0]), request.parameters["count_up_to"]
        self._record_scan(request, rows[-1])
        if request.parameters["check_for_due"]:
            self._check_for_due_at = request.requested_at + CHECK_FOR_DUE_RETRIES_EVERY_SECONDS
        self._promoted = self.promote_due_jobs(request.parameters["due_after"]) if state.retry_is_due else 0
        if rows[0]["id"] is None:
            self._check_for_due_at = 0.0
            return Claim([], state, counted_up_to, self.route)
        return Claim([self._claimed_job(row, request) for row in rows], state, counted_up_to, self.route)

    def promote_due_jobs(self, due_after: str = START.created_at) -> int:
        promoted = len(self.database.run("promote_due_jobs", due_after=due_after))
        self._check_for_due_at = 0.0  # one call promotes one batch, and there may be more
        self.promoted_in_all += promoted
        if promoted:
            self._scans.record_known_job()  # their created_at may be before the start of the next claim
        return promoted

    @property
    def peek_start(self) -> Position:
        """Where a peek starts. Expensive scans are left to claims."""
        return self._scans.position if self._scans.is_limited else START

    @property
    def may_find_more(self) -> bool:
        """Whether a claim may find a job that a peek has not found, because it started after it."""
        return self._scans.is_limited

    def record_peek(self, start: Position, row: DictRow) -> None:
        scan = Scan(start, row["entries"], row["seconds"], time.monotonic())
        if row["first_id"] is not None:
            self._scans.record_job_seen(scan)
        elif not scan.is_cheap:
            self._scans.record_nothing_found(scan, row["recent"])

    def _choose_start(self) -> Position:
        return START if self._scans.allows_scan(time.monotonic()) else self._scans.position

    def _request_from(
        self, start: Position, server: str, holder: str, wanted: int, count_up_to: int, *, counts_rarely: bool = False
    ) -> ClaimRequest:
        now, is_rare = time.monotonic(), start is START and self._scans.is_limited
        check_for_due = now >= self._check_for_due_at or is_rare
        parameters = {
            "server": server, "holder": holder, "lease_ttl": self._lease_seconds, "wanted": wanted,
            "count_up_to": count_up_to if check_for_due or not counts_rarely else 0, "check_for_due": check_for_due,
            "due_after": START.created_at if start == START else self._scans.due_after, **start.parameters,
            "route": self.route, "excluded": array_literal(self.excluded),
        }  # fmt: skip
        return ClaimRequest(holder, now, start, parameters)

    def _record_scan(self, request: ClaimRequest, row: DictRow) -> None:
        if row["entries"] is None:  # the breaker or the server's state did not let the claim read the index
            return
        scan = Scan(request.start, row["entries"], row["seconds"], time.monotonic())
        if scan.is_cheap:
            if self._scans.is_limited:
                self._scans.record_cheap_scan()
            return
        if row["id"] is None:
            self._scans.record_nothing_found(scan, row["recent"])
        else:
            claimed = Position(-row["priority"], row["turn"], str(row["created_at"]), row["id"])
            self._scans.record_claim(scan, claimed)
        if scan.start == START and request.parameters["check_for_due"] and not row["retry_is_due"]:
            self._scans.record_no_retry_due(row["recent"])

    def _claimed_job(self, row: DictRow, request: ClaimRequest) -> ClaimedJob:
        return ClaimedJob(
            id=row["id"], holder=request.holder, attempt=row["attempt"], mapping=row["mapping"], pretty=row["pretty"],
            bytes=row["bytes"], is_trial=row["breaker"] == "half_open", queued_ms=int(row["waited"] * 1000),
            route=self.route, run=row["run"], begun_at=time.monotonic(),
            lease_ends=request.requested_at + self._lease_seconds,
        )  # fmt: skip


class NextClaim(NamedTuple):
    """The claim that a completion takes along: by which worker, with which cursor, and of how many jobs."""

    cursor: ClaimCursor
    server: str
    holder: str
    wanted: int = 1
    count_up_to: int = 1  # how many of the jobs that are left are counted

    def request(self) -> ClaimRequest:
        return self.cursor.request(self.server, self.holder, self.wanted, self.count_up_to)


def array_literal(names: Sequence[str]) -> str:
    """As PostgreSQL writes an array of text: a pipeline sends its parameters as text."""
    quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    return "{" + ",".join(f'"{name}"' for name in quoted) + "}"
