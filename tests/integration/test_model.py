"""The statements do what a plain model of the queue does, in any order and from several connections."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from convertq.queue.database.connection import connect
from convertq.queue.database.url import parse_database_url
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Failed, RetryLater
from convertq.queue.retry_policy import after_failure
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import booleans, data, integers, lists, sampled_from
from psycopg.sql import SQL, Identifier

from tests.jobs import (
    Conn,
    complete,
    complete_and_claim,
    cursor,
    queue,
    register_server,
    run,
    set_breaker,
)
from tests.model import MAX_ATTEMPTS, ModelQueue

#: a worker: its host and its slot. Two of them share a host.
Worker = tuple[str, int]
WORKERS: list[Worker] = [("a", 1), ("a", 2), ("b", 1)]
SETTINGS = {"RETRY_MAX_ATTEMPTS": MAX_ATTEMPTS, "RETRY_JITTER_MAX_MS": 0}
NEVER_DUE_MS = 10**9
#: The mutation check needs to know that a step fails, not the shortest way to it, which takes minutes to find.
PHASES = (Phase.generate,) if "MODEL_ONLY_GENERATES" in os.environ else tuple(Phase)

ROWS = "SELECT * FROM jobs ORDER BY created_at, id"
EVENTS = "SELECT job_id, array_agg(event_type ORDER BY id) AS types FROM job_events GROUP BY job_id"


class QueueMachine(RuleBasedStateMachine):
    """`claims` keeps every lease that was ever given out: most are lost by the time that they are used."""

    claims: Bundle[ClaimedJob] = Bundle("claims")
    jobs: Bundle[UUID] = Bundle("jobs")

    def __init__(self, connections: dict[Worker, Conn]) -> None:
        super().__init__()
        self.connections = connections
        self.observer = connections["a", 1]
        self.empty()
        self.model = ModelQueue()
        self.servers = {host: self.register(host) for host in ("a", "b")}

    def empty(self) -> None:
        """Events are append-only, but for a transaction that says that it cleans up."""
        with self.observer.transaction():
            self.observer.execute("SELECT set_config('convertq.cleanup', 'on', true)")
            for table in ("job_events", "job_progress", "jobs", "servers"):
                self.observer.execute(SQL("DELETE FROM {}").format(Identifier(table)))
        set_breaker(self.observer, "closed")

    def register(self, host: str) -> str:
        return register_server(self.observer, f"{host}:1:{uuid4().hex}")

    def holder(self, worker: Worker) -> str:
        return f"{self.servers[worker[0]]}/{worker[1]}"

    # -- the web application and the operator --

    @rule(target=jobs, priority=sampled_from([0, 0, 7]))
    def submit(self, priority: int) -> UUID:
        job_id = uuid4()
        row = run(
            self.observer, "submit_job", id=job_id, owner="owner", original_filename="a.pdf", bytes=1,
            sha256=job_id.hex * 2, mapping="pt_simon_invoice_v1", pretty=True, priority=priority, status="queued",
            upload_path="/uploads/a.pdf", not_before=None, deadline=None,
        )  # fmt: skip
        assert [found["id"] for found in row] == [job_id]
        self.model.submit(job_id, priority)
        return job_id

    @rule(job_id=jobs)
    def retry_by_hand(self, job_id: UUID) -> None:
        assert bool(run(self.observer, "retry_jobs", ids=[job_id])) == self.model.retry_by_hand(job_id)

    @rule(job_id=jobs, worker=sampled_from(WORKERS))
    def cancel(self, job_id: UUID, worker: Worker) -> None:
        rows = run(self.connections[worker], "cancel_jobs", ids=[job_id], by="an operator")
        assert bool(rows) == self.model.cancel(job_id)

    @rule(state=sampled_from(["closed", "closed", "closed", "open"]))
    def move_the_breaker(self, state: str) -> None:
        set_breaker(self.observer, state)
        self.model.breaker, self.model.prober, self.model.trial = state, None, None

    @rule(worker=sampled_from(WORKERS))
    def half_open_the_breaker(self, worker: Worker) -> None:
        set_breaker(self.observer, "half_open", probe_by=self.holder(worker))
        self.model.breaker, self.model.prober, self.model.trial = "half_open", self.holder(worker), None

    # -- workers --

    @rule(target=claims, worker=sampled_from(WORKERS))
    def claim(self, worker: Worker) -> ClaimedJob | MultipleResults[ClaimedJob]:
        server, holder = self.servers[worker[0]], self.holder(worker)
        expected = self.model.claim(server, holder)
        claim = cursor(self.connections[worker], **SETTINGS).claim_job(server, holder)
        job, state = claim.job, claim.state
        assert state.server_is_active == (server not in self.model.gone)
        if job is None or expected is None:
            assert job is None
            assert expected is None
            return multiple()
        assert (job.id, job.attempt) == (expected.id, expected.attempts)
        assert job.is_trial == (self.model.trial == job.id)
        return job

    @rule(claim=claims, worker=sampled_from(WORKERS))
    def extend(self, claim: ClaimedJob, worker: Worker) -> None:
        held = self.holds(claim)
        assert queue(self.connections[worker], **SETTINGS).extend_lease(claim) == held
        if held:
            self.model.extend(claim.id)

    @rule(claim=claims, worker=sampled_from(WORKERS))
    def report_progress(self, claim: ClaimedJob, worker: Worker) -> None:
        held = self.holds(claim)
        assert queue(self.connections[worker], **SETTINGS).report_progress(claim, "reading", 10, 1, 10) == held
        if held:
            self.model.report(claim.id)

    @rule(claim=claims, worker=sampled_from(WORKERS))
    def complete(self, claim: ClaimedJob, worker: Worker) -> None:
        held, mine = self.holds(claim), queue(self.connections[worker], **SETTINGS)
        with mine.database.transaction():
            assert mine.lock_lease(claim) == held
            assert complete(self.connections[worker], claim) == held
            if held and self.model.trial == claim.id:
                mine.database.run("close_breaker", id=claim.id)
        if held:
            self.model.complete(claim.id)

    @rule(
        target=claims,
        finished=lists(claims, min_size=1, max_size=8, unique_by=lambda claim: claim.id),
        wanted=integers(0, 8),
        worker=sampled_from(WORKERS),
    )
    def complete_and_claim(
        self, finished: list[ClaimedJob], wanted: int, worker: Worker
    ) -> MultipleResults[ClaimedJob]:
        server, holder = self.servers[worker[0]], self.holder(worker)
        if any(claim.is_trial or self.model.trial == claim.id for claim in finished):  # completed by `complete`
            return multiple()
        held = {claim.id for claim in finished if self.holds(claim)}
        completion = complete_and_claim(
            self.connections[worker], finished, server, holder, wanted=wanted, settings=SETTINGS
        )
        assert completion.leased == held
        # The claims come first: what the completion makes claimable is for the next claim.
        all_held = len(held) == len(finished)
        expected = self.model.claim_with_completion(server, holder, wanted) if all_held else []
        for job_id in held:
            self.model.complete(job_id)
        claimed = completion.claim.jobs if completion.claim else []
        assert [(job.id, job.attempt) for job in claimed] == [(job.id, job.attempts) for job in expected]
        return multiple(*claimed)

    @rule(
        claim=claims,
        worker=sampled_from(WORKERS),
        later=booleans(),
        code=sampled_from([Code.GW_5XX, Code.GW_4XX, Code.IO_ERROR]),
    )
    def fail(self, claim: ClaimedJob, worker: Worker, later: bool, code: Code) -> None:
        held, mine = self.holds(claim), queue(self.connections[worker], **SETTINGS)
        failure = Failure(code, "it went wrong")
        limit = {Code.GW_5XX: MAX_ATTEMPTS, Code.GW_4XX: 0, Code.IO_ERROR: 2}[code]
        outcome = after_failure(failure, claim.attempt, mine._config)
        assert isinstance(outcome, RetryLater) == (claim.attempt < limit)
        if isinstance(outcome, RetryLater):
            chosen = RetryLater(failure, NEVER_DUE_MS if later else 0)
            assert (mine.schedule_retry(claim, chosen) is not None) == held
            if held:
                self.model.retry_later(claim.id, waits=later)
        else:
            assert isinstance(outcome, Failed)
            assert mine.fail_job(claim, outcome) == held
            if held:
                self.model.fail(claim.id, code, dead_letter=code is not Code.GW_4XX)

    @rule(claim=claims, worker=sampled_from(WORKERS))
    def release(self, claim: ClaimedJob, worker: Worker) -> None:
        held = self.holds(claim)
        assert queue(self.connections[worker], **SETTINGS).requeue_job(claim, "shutdown") == held
        if held:
            self.model.release(claim.id)

    # -- supervisors --

    @rule(worker=sampled_from(WORKERS), counted=booleans())
    def requeue(self, worker: Worker, counted: bool) -> None:
        mine = queue(self.connections[worker], **SETTINGS)
        rows = mine.requeue_worker_jobs(self.holder(worker), counted=counted, reason="worker died")
        assert {row["id"] for row in rows} == self.model.requeue(self.holder(worker), counted=counted)

    @rule(worker=sampled_from(WORKERS))
    def reclaim(self, worker: Worker) -> None:
        rows = queue(self.connections[worker], **SETTINGS).reclaim_jobs()
        assert {row["id"] for row in rows} == self.model.reclaim()

    @rule(host=sampled_from(["a", "b"]))
    def fall_silent(self, host: str) -> None:
        server = self.servers[host]
        self.observer.execute("UPDATE servers SET last_heartbeat_at = now() - interval '1 h' WHERE id = %s", [server])
        if server not in self.model.gone:
            self.model.silent.add(server)

    @rule(host=sampled_from(["a", "b"]))
    def be_heard_for_an_hour(self, host: str) -> None:
        server = self.servers[host]
        if server in self.model.silent | self.model.gone:
            return
        self.observer.execute("UPDATE servers SET heard_since = now() - interval '1 h' WHERE id = %s", [server])
        self.model.witnesses.add(server)

    @rule(host=sampled_from(["a", "b"]))
    def beat(self, host: str) -> None:
        """A supervisor that finds itself marked dead goes on under a new name."""
        server = self.servers[host]
        alive = bool(
            run(self.observer, "heartbeat_server", server=server, concurrency=4, longest_gap=20, gateways=["default"])
        )
        assert alive == (server not in self.model.gone)
        if server in self.model.silent:
            self.model.witnesses.discard(server)
        self.model.silent.discard(server)
        if not alive:
            self.servers[host] = self.register(host)

    @precondition(lambda self: any(job.status == "processing" for job in self.model.jobs.values()))
    @rule(chosen=data())
    def let_a_lease_run_out(self, chosen: object) -> None:
        running = [job.id for job in self.model.jobs.values() if job.status == "processing"]
        job_id = chosen.draw(sampled_from(running))  # type: ignore[attr-defined]
        self.observer.execute("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE id = %s", [job_id])
        self.model.jobs[job_id].lease_is_over = True

    def holds(self, claim: ClaimedJob) -> bool:
        return self.model.holds(claim.id, claim.holder, claim.attempt)

    # -- after every step --

    @invariant()
    def rows_and_events_agree_with_the_model(self) -> None:
        found = {row["id"]: row for row in self.observer.execute(ROWS)}
        events = {row["job_id"]: row["types"] for row in self.observer.execute(EVENTS)}
        shown = {row["job_id"] for row in self.observer.execute("SELECT job_id FROM job_progress")}
        assert found.keys() == self.model.jobs.keys()
        for job_id, job in self.model.jobs.items():
            row = found[job_id]
            assert (row["status"], row["attempt_count"], row["leased_by"]) == (job.status, job.attempts, job.holder)
            assert (row["dead_letter"], row["error_code"]) == (job.dead_letter, job.error_code)
            assert (row["cancelled_at"] is not None) == (job.status == "cancelled")
            assert events[job_id] == job.events
            assert (job_id in shown) == job.shows_progress
            assert row["attempt_count"] <= MAX_ATTEMPTS

    @invariant()
    def the_breaker_agrees_with_the_model(self) -> None:
        row = self.observer.execute("SELECT state, probe_by, trial_job FROM circuit_breaker").fetchone()
        assert row is not None
        found = (row["state"], row["probe_by"], row["trial_job"])
        assert found == (self.model.breaker, self.model.prober, self.model.trial)


@pytest.fixture
def connections(database_url: str) -> Iterator[dict[Worker, Conn]]:
    """One for each worker, as workers make them."""
    with contextlib.ExitStack() as opened:
        url = parse_database_url(database_url)
        yield {worker: opened.enter_context(connect(url, f"convertq:{worker}")) for worker in WORKERS}


@pytest.mark.timeout(300)
def test_the_statements_agree_with_the_model_after_every_step(connections: dict[Worker, Conn]) -> None:
    run_state_machine_as_test(
        lambda: QueueMachine(connections),  # type: ignore[arg-type] # any maker of machines will do
        settings=settings(
            max_examples=70,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,  # the same steps in every run: a failure is never a surprise in somebody else's change
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        ),
    )
