"""Proof that the tests would notice: takes one safeguard away at a time, in a copy, and runs its tests.

.venv/bin/python -m tests.chaos.mutations [words of a mutation's name]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cli", "embedded", "gateway", "queue", "sql", "web", "worker")
FENCES = "tests/integration/test_fences.py"
MODEL = "tests/integration/test_model.py"
PUBLICATION = "tests/integration/test_publication.py"
TOGETHER = "tests/integration/test_complete_and_claim.py"
BATCHES = "tests/lifecycle/test_batches.py"
RUNS = "tests/integration/test_runs.py"
TRIAL = "tests/integration/test_trial.py"
WAITS = "tests/integration/test_retry_waits.py"
CLAIM = "tests/integration/test_claim_job.py"
FILES = "tests/unit/test_files.py"
INFINITE = "tests/integration/test_infinite_times.py"
CANCEL = "tests/integration/test_cancel_jobs.py"
OWNERS = "tests/integration/test_fair_share.py"
CANCELLED_CALLS = "tests/lifecycle/test_cancel.py"
RULES = "sql/migrations/0013_rules.sql"  # where guard_job is defined last
FOLLOWS = "sql/migrations/0008_cancel.sql"  # where follow_transition is
SECONDS = 300  # for the tests of one mutation

HOLDER, ATTEMPT = " AND leased_by = %(holder)s", " AND attempt_count = %(attempt)s"
RUN = " AND run = %(run)s"
FENCED = (
    "extend_lease",
    "report_progress",
    "lock_lease",
    "schedule_retry",
    "fail_job",
    "requeue_job",
)


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str  # below the package folder
    safeguard: str
    instead: str
    tests: tuple[str, ...]


def statement(name: str, what: str, safeguard: str, instead: str = "") -> Mutation:
    tests = (f"tests/integration/test_{name}.py", FENCES, MODEL)
    return Mutation(f"{name} {what}", f"sql/queries/{name}.sql", safeguard, instead, tests)


def mutations() -> Iterator[Mutation]:
    for name in FENCED:
        yield statement(name, "without its fence", HOLDER + ATTEMPT + RUN)
        yield statement(name, "without the holder", HOLDER)
        yield statement(name, "without the attempt", ATTEMPT)
        yield statement(name, "without the run", RUN)
    yield statement("reclaim_jobs", "without the cap", "job.attempt_count >= %(max_attempts)s AS", "false AS")
    yield statement("requeue_worker_jobs", "without the cap", "attempt >= %(max_attempts)s AS", "false AS")
    known = " AND id <> ALL (%(kept)s::uuid[])"
    yield statement("requeue_worker_jobs", "without the jobs that the worker knows of", known)
    begun = " AND (%(begun)s::uuid[] IS NULL OR id = ANY (%(begun)s::uuid[]))"
    yield statement("requeue_worker_jobs", "counting what was not begun", begun)
    judged = ("tests/integration/test_reclaim_jobs.py",)
    dead, always = "sql/queries/mark_servers_dead.sql", "OR true OR EXISTS ("
    yield Mutation("silent servers judged without a witness", dead, "OR EXISTS (", always, judged)
    beat, never = "sql/queries/heartbeat_server.sql", "THEN heard_since ELSE"
    yield Mutation("a gap between heartbeats forgotten", beat, "THEN now() ELSE", never, judged)
    yield from of_completion()
    yield from of_runs()
    yield from of_rules()
    yield from of_cancel()
    yield from of_owners()
    yield from of_slots()


def of_completion() -> Iterator[Mutation]:
    """The fence of each job of a batch, and what depends on it."""
    holder, attempt = " AND job.leased_by = given.holder", "\n       AND job.attempt_count = given.attempt"
    name, run = "complete_and_claim", " AND job.run = given.run"
    yield statement(name, "without its fence", holder + attempt + run)
    yield statement(name, "without the holder", holder)
    yield statement(name, "without the attempt", attempt)
    yield statement(name, "without the run", run)
    all_held = "(SELECT count(*) FROM finished) = jsonb_array_length(%(finished)s::jsonb)"
    yield statement(name, "claiming without the leases", all_held, "true")
    checked, always = " if one.job.id in completion.leased]", "]"
    yield Mutation("a result published without the lease", "queue/settle.py", checked, always, (PUBLICATION, TOGETHER))
    death, all_count = "begun=begun, counted=counted", "counted=counted"
    yield Mutation(
        "a dead worker's jobs all counted", "worker/supervisor/recovery.py", death, all_count, (BATCHES,)
    )  # fmt: skip
    late = "time.monotonic() >= self._batch.is_late_at"
    yield Mutation("a batch that waits for a slow job", "worker/loop/monitor_thread.py", late, "False", (BATCHES,))


def of_runs() -> Iterator[Mutation]:
    """A result serves its own run only, and the breaker closes by a call that is known to be committed."""
    result, ours = "queue/store/directory_result.py", "is_of_run(self.location, self._run) and "
    yield Mutation("a result of any run is as good", result, ours, "", (RUNS,))
    yield Mutation("a result without its mark", result, "mark_run(sink, self._run)", "pass", (RUNS,))
    later = "(run_of(result) or run) < run =="
    yield Mutation("a result of a later run gives way", "queue/store/run_mark.py", later, "run ==", (RUNS,))
    yield Mutation(
        "a rename that replaces", "queue/store/regular_file.py", "names[1], RENAME_NOREPLACE)", "names[1], 0)", (FILES,)
    )
    yield Mutation("a trial without a call closes", "queue/breaker.py", "if not called:", "if called is ...:", (TRIAL,))
    committed, anyhow = 'case "committed":', 'case "committed" | "aborted":'
    yield Mutation("an aborted change is logged", "queue/breaker.py", committed, anyhow, (TRIAL,))


def of_rules() -> Iterator[Mutation]:
    """What the trigger holds every writer to, and the lock that lets others refer to a job."""
    counted = "OLD.run + ({schema}.is_terminal(OLD.status) AND NOT {schema}.is_terminal(NEW.status))::int"
    yield Mutation("a start over in the same run", RULES, counted, "OLD.run", (RUNS,))
    starts = "OLD.status <> 'processing' AND NEW.status"
    yield Mutation(
        "a start over before its dependencies", RULES, starts, "OLD.status = 'uploaded' AND NEW.status", (WAITS,)
    )
    yield Mutation("a lease without an end", RULES, "AND isfinite(NEW.lease_expires_at) ", "", (INFINITE,))
    lock = "FOR NO KEY UPDATE SKIP LOCKED"
    yield Mutation(
        "a claim that a reference keeps away",
        "sql/queries/complete_and_claim.sql",
        lock,
        lock.replace("NO KEY ", ""),
        (CLAIM,),
    )


def of_cancel() -> Iterator[Mutation]:
    """A cancelled job ends for everybody: its row, its call, its result and those who wait for it."""
    uncounted = "job.attempt_count - (unfinished.status = 'processing')::int"
    yield statement("cancel_jobs", "counting the attempt that it ends", uncounted, "job.attempt_count")
    yield statement("cancel_jobs", "of jobs that have ended", " AND {schema}.is_active(status)")
    notified = "PERFORM pg_notify({schema}.cancel_channel(), OLD.leased_by);"
    yield Mutation("a cancel that notifies nobody", FOLLOWS, notified, "NULL;", (CANCELLED_CALLS,))
    extends = "if self._cancels.take_for_attempt():"
    monitor, never = "worker/loop/attempt_monitor.py", "if False:"
    yield Mutation("a worker deaf to the cancel of its call", monitor, extends, never, (CANCELLED_CALLS,))
    ahead = "if self._cancels.take_for_ahead():"
    yield Mutation("a worker that begins a cancelled job", "worker/loop/worker.py", ahead, never, (CANCELLED_CALLS,))
    left = "discard_results(self._queue.database, self._store, [job.id])"
    yield Mutation("a cancelled attempt that leaves its result", "queue/settle.py", left, "pass", (CANCEL,))
    dead = "discard_results(database, store, [row"
    yield Mutation("a dead worker's result that stays", "queue/cancel.py", dead, "list([row", (CANCEL,))
    still = " AND status = 'cancelled'"
    yield Mutation("a result of the next run removed", "sql/queries/lock_cancelled_jobs.sql", still, "", (CANCEL,))
    shared = "          ORDER BY id FOR SHARE;"
    yield Mutation("a retry that misses its dependency", FOLLOWS, shared, "          ORDER BY id;", (CANCEL,))


def of_owners() -> Iterator[Mutation]:
    """Owners take turns, and none of them has more running jobs than allowed."""
    shares, claims = "sql/migrations/0014_fair_share.sql", "sql/queries/complete_and_claim.sql"
    yield Mutation("turns without a weight", shares, "SELECT weight FROM", "SELECT 1 FROM", (OWNERS,))
    present = "ORDER BY turn, created_at, id LIMIT 1)"
    yield Mutation("a new owner with the first turn", shares, present, "AND false LIMIT 1)", (OWNERS,))
    begun = "coalesce(old.run = job.run AND job.started_at IS NOT NULL, false)"
    yield Mutation("a retry that loses its turn", shares, begun, "false", (OWNERS,))
    yield Mutation("a manual retry that keeps its turn", shares, "old.run = job.run AND ", "", (OWNERS,))
    yield Mutation("a change of priority with the old turn", shares, "AND old.priority = job.priority ", "", (OWNERS,))
    last, first = "ORDER BY turn DESC LIMIT 1)", "ORDER BY turn LIMIT 1)"
    yield Mutation("an owner whose jobs share a turn", shares, last, first, (OWNERS,))
    older = " AND changed_by < %(oldest)s::xid8"
    yield Mutation("turns renewed too early", "sql/queries/finish_renewing.sql", older, "", (OWNERS,))
    cap = " || CASE WHEN cap > 0 THEN {schema}.owners_at_cap(cap) END"
    yield Mutation("a claim that knows no limit of an owner", claims, cap, "", (OWNERS,))
    yield Mutation("a batch beyond the limit", claims, "CASE WHEN cap > 0 THEN 1 END", "8", (OWNERS,))
    behind = "over_cap AND coalesce(owner_session_id, '') = its_owner"
    yield Mutation("a job that passes others of its owner", shares, behind, f"false AND {behind}", (OWNERS,))
    trail, at_once = "entries <= TRAIL_ENTRIES", "entries <= 0"
    yield Mutation("a position without a distance", "queue/scan_budget.py", trail, at_once, (OWNERS,))


def of_slots() -> Iterator[Mutation]:
    """No more calls are under way than a limit allows, and every slot is freed."""
    tests = ("tests/integration/test_routes.py",)
    lives = "AND EXISTS (SELECT FROM {schema}.servers WHERE id = %(server)s AND status = 'active')"
    yield Mutation("a slot for a dead server", "sql/queries/take_slot.sql", lives, "", tests)
    lost = " WHERE holder IS NOT NULL\n"
    yield Mutation("a slot that stays", "sql/queries/declare_gateways.sql", lost, f"{lost}       AND false\n", tests)
    needed = "AND holder = %(holder)s AND number <= max_calls"
    yield Mutation("a claim without a slot", "sql/queries/complete_and_claim.sql", needed, "", tests)


def copy_of_the_checkout(folder: Path) -> None:
    """Under the names that are imported: a path of its own comes before whatever is installed."""
    leave_out = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / "convertq" / package, ignore=leave_out)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=leave_out)
    shutil.copy(ROOT / "pyproject.toml", folder)


def passes(folder: Path, tests: tuple[str, ...]) -> bool:
    """Whether they pass in the copy; a run that could not begin ends everything."""
    there = [test for test in dict.fromkeys(tests) if (folder / test).exists()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *there]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["MODEL_ONLY_GENERATES"] = "1"
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if ran.returncode > 1:
        sys.exit(f"pytest could not run:\n{ran.stdout}{ran.stderr}")
    return ran.returncode == 0


def survives(folder: Path, mutation: Mutation) -> bool:
    file = folder / "convertq" / mutation.file
    text = file.read_text()
    if text.count(mutation.safeguard) != 1:
        sys.exit(f"{mutation.file} has no single [{mutation.safeguard}]: this script must follow it")
    file.write_text(text.replace(mutation.safeguard, mutation.instead))
    try:
        return passes(folder, mutation.tests)
    finally:
        file.write_text(text)


def main(words: list[str]) -> int:
    chosen = [mutation for mutation in mutations() if all(word in mutation.name for word in words)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_of_the_checkout(folder)
        if not passes(folder, tuple(test for mutation in chosen for test in mutation.tests)):
            sys.exit("the tests fail without any mutation")
        survivors = []
        for mutation in chosen:
            began = time.monotonic()
            survived = survives(folder, mutation)
            survivors += [mutation.name] * survived
            print(
                f"{'SURVIVED' if survived else 'caught'} {mutation.name} ({time.monotonic() - began:.0f} s)", flush=True
            )
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutations were caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
