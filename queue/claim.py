"""Claiming: where the next claim of a worker starts in the index, and what it learns besides its job."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.job import ClaimedJob
from convertq.queue.scan_budget import START, Position, Scan, ScanBudget
from psycopg.rows import DictRow

#: How often a busy worker checks whether retries have become due. A worker without a job checks with every claim.
CHECK_FOR_DUE_RETRIES_EVERY_SECONDS = 0.2


class QueueState:
    """What a claim has learnt about the queue."""

    def __init__(self, row: DictRow) -> None:
        self.breaker: str = row["breaker"]
        self.probe_is_due: bool = row["probe_is_due"]
        self.server_is_active: bool = row["server_is_active"]
        self.more_to_claim: bool = row["more_to_claim"]
        self.retry_is_due: bool = row["retry_is_due"]


class Claim(NamedTuple):
    """The answer to a claim; `job` is None when nothing could be claimed."""

    job: ClaimedJob | None
    state: QueueState


class ClaimRequest(NamedTuple):
    """The parameters of a claim, and what is needed to read its answer."""

    holder: str
    requested_at: float  # by the monotonic clock, before the statement: the lease never seems longer than it is
    start: Position
    parameters: dict[str, Any]


class ClaimCursor:
    """The claims of one worker on one connection. It remembers where to start and when to check for due retries."""

    def __init__(self, database: Database, config: Config, scans: ScanBudget | None = None) -> None:
        self.database = database
        self._lease_seconds = config.worker_lease_ttl_sec
        self._scans = scans or ScanBudget()
        self._check_for_due_at = 0.0
        self._promoted = 0  # retries that the last claim made claimable

    def claim_job(self, server: str, holder: str, *, known: bool = False) -> Claim:
        """`known` means that a job is believed to be there, because of a wake-up for example.

        Where scanning the index is expensive, a claim may find nothing although there is a job before its start. The
        next scan from the beginning finds that job.
        """
        start = self._choose_start()
        while True:
            request = self._request_from(start, server, holder)
            claim = self.accept(request, self.database.run("claim_job", **request.parameters)[0])
            if claim.job is not None:
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

    def request(self, server: str, holder: str) -> ClaimRequest:
        """A claim for a statement that does something else too; `accept` reads what it answers."""
        return self._request_from(self._choose_start(), server, holder)

    def accept(self, request: ClaimRequest, row: DictRow) -> Claim:
        """Reads the row of a claim that is committed, and makes retries claimable that it found to be due."""
        state = QueueState(row)
        self._record_scan(request, row)
        if request.parameters["check_for_due"]:
            self._check_for_due_at = request.requested_at + CHECK_FOR_DUE_RETRIES_EVERY_SECONDS
        self._promoted = self.promote_due_jobs(request.parameters["due_after"]) if state.retry_is_due else 0
        if row["id"] is None:
            self._check_for_due_at = 0.0
            return Claim(None, state)
        return Claim(self._claimed_job(row, request), state)

    def promote_due_jobs(self, due_after: str = START.created_at) -> int:
        promoted = len(self.database.run("promote_due_jobs", due_after=due_after))
        self._check_for_due_at = 0.0  # one call promotes one batch, and there may be more
        if promoted:
            self._scans.record_known_job()  # their created_at may be before the start of the next claim
        return promoted

    def _choose_start(self) -> Position:
        return START if self._scans.allows_scan(time.monotonic()) else self._scans.position

    def _request_from(self, start: Position, server: str, holder: str) -> ClaimRequest:
        now, is_rare = time.monotonic(), start is START and self._scans.is_limited
        parameters = {
            "server": server, "holder": holder, "lease_ttl": self._lease_seconds,
            "check_for_due": now >= self._check_for_due_at or is_rare,
            "due_after": START.created_at if start == START else self._scans.due_after, **start.parameters,
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
            run=row["run"], claimed_at=time.monotonic(), lease_ends=request.requested_at + self._lease_seconds,
        )  # fmt: skip


class NextClaim(NamedTuple):
    """The claim that a completion takes along: by which worker, and with which cursor."""

    cursor: ClaimCursor
    server: str
    holder: str


def seconds_claimable(database: Database, scans: ScanBudget) -> float | None:
    """For how long a job has been claimable; None when there is none. Expensive scans are left to the workers."""
    start = scans.position if scans.is_limited else START
    row = database.run("find_claimable_job", **start.parameters)[0]
    scan = Scan(start, row["entries"], row["seconds"], time.monotonic())
    if row["waited"] is not None:
        scans.record_job_seen(scan)
    elif not scan.is_cheap:
        scans.record_nothing_found(scan, row["recent"])
    waited: float | None = row["waited"]
    return waited
