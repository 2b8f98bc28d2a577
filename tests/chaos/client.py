"""The users of the storm: they submit through the real submission, cancel some jobs, pause and resume gateways and
owners, and retry what has failed."""

from __future__ import annotations

import io
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

import psycopg
from convertq.queue.cancel import Cancelling, CancelVerdict
from convertq.queue.config import read_config
from convertq.queue.database.database import Database
from convertq.queue.errors import StorageError
from convertq.queue.pauses import Scope, end_pauses, list_pauses, move_paused_jobs, move_resumed_jobs, start_pause
from convertq.queue.queue_events import Operator
from convertq.queue.store import open_store
from convertq.queue.submission import SubmissionOptions, Submitter

from tests.chaos.cluster import Cluster
from tests.chaos.faulty_gateway import ADAPTIVE, CURABLE, GATEWAYS, GOOD, POISON, SIDE

BACKLOG = 32  # jobs that wait or run: enough that every worker always finds one
ROUND_SECONDS = 0.2
DEPENDANTS = 0.1  # of the jobs wait for the one before
RETRIES_BY_HAND = 3  # of a job that is poison
CANCELS = 0.7  # of the rounds cancel a job: more than 1,000 in ten minutes
PAUSES = 0.1  # of the rounds begin a pause, if there is none
PAUSE_SECONDS = (0.5, 4.0)
MOVING_SECONDS = 0.1  # of jobs of an owner; supervisors do the rest
OWNERS = ("one", "two", "three")
OPERATOR = Operator("the storm")
RETRIES_OF_CANCELLED = 0.3  # of the rounds start a cancelled job over

UNFINISHED = (
    "SELECT id FROM jobs WHERE status IN ('uploaded', 'queued', 'processing')"
    " UNION ALL SELECT id FROM jobs WHERE status = 'processing'"
)
ANY_CANCELLED = "SELECT id FROM jobs WHERE status = 'cancelled' ORDER BY random() LIMIT 1"
NEEDED = (
    "SELECT DISTINCT needed.id FROM jobs AS needed JOIN job_dependencies ON depends_on = needed.id"
    " JOIN jobs AS dependant ON dependant.id = job_id"
    " WHERE needed.status = 'cancelled' AND dependant.status = 'uploaded'"
)


@dataclass
class Pause:
    """Nothing of this scope may be claimed by a statement that begins between the two times."""

    scope: Scope
    since: float  # when it was acknowledged
    until: float = float("inf")  # when its end was requested


class Client(threading.Thread):
    """`submitted` has the ids whose submission was confirmed; an unconfirmed one may be there all the same."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(daemon=True)
        self.config = read_config(cluster.environment())
        self.submitted: set[UUID] = set()
        self.retried: dict[UUID, int] = {}
        self.cancelled: Counter[UUID] = Counter()  # how often, as far as it was acknowledged
        self.pauses: list[Pause] = []
        self._resume_at: float | None = None
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self.submits = True
        self._stopping = threading.Event()
        self._dice = random.Random(seed)
        self._count = 0
        self._good: UUID | None = None  # the last job that is sure to be complete in the end
        self._store = open_store(self.config)

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._work_until_trouble()
        except BaseException as error:  # noqa: BLE001 - raised again by stop()
            self.failure = error
        finally:
            self.ended.set()

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)
        if self.failure:
            raise self.failure

    def _work_until_trouble(self) -> None:
        try:
            database = Database.open(self.config.database, "client")
        except psycopg.Error:
            self._stopping.wait(ROUND_SECONDS)
            return
        try:
            while not self._stopping.wait(ROUND_SECONDS):
                self._submit(database)
                self._retry_by_hand(database)
                self._cancel(database)
                self._pause_or_resume(database)
                self._start_over_cancelled(database)
        except (psycopg.Error, StorageError):
            pass  # the database or the storage is down or being restarted
        finally:
            database.close()

    def _submit(self, database: Database) -> None:
        if not self.submits:
            return
        waiting = database.connection.execute(
            "SELECT count(*) AS jobs FROM jobs WHERE status IN ('queued', 'processing')"
        ).fetchone()
        assert waiting
        submitter = Submitter(database, self._store, self.config)
        for _ in range(BACKLOG - waiting["jobs"]):
            self._count += 1
            pdf = io.BytesIO(b"%%PDF-1.7\n%% %d\n" % self._count + self._dice.randbytes(2000))
            mapping = self._dice.choices([GOOD, SIDE, ADAPTIVE, POISON, CURABLE], [50, 22, 20, 4, 4])[0]
            after = (self._good,) if self._good and self._dice.random() < DEPENDANTS else ()
            order = SubmissionOptions(
                owner=self._dice.choice(OWNERS), mapping=mapping, priority=self._dice.choice([0, 0, 0, 5]), after=after
            )
            submission = submitter.submit(pdf, f"{self._count}.pdf", order)
            assert submission.id is not None, submission
            self.submitted.add(submission.id)
            if mapping == GOOD:
                self._good = submission.id

    def _cancel(self, database: Database) -> None:
        """Any unfinished job, twice as often one that is being converted; its dependants sometimes with it."""
        if not self.submits or self._dice.random() >= CANCELS:
            return
        rows = database.connection.execute(UNFINISHED).fetchall()
        if rows:
            job_id = self._dice.choice(rows)["id"]
            cascade = self._dice.random() < 0.5
            done = Cancelling(database, self._store, OPERATOR, cascade=cascade).cancel(job_id)
            self.cancelled[job_id] += done.verdict is CancelVerdict.CANCELLED

    def _pause_or_resume(self, database: Database) -> None:
        """One pause at a time. One whose acknowledgement was lost may be in force, and ends with the next."""
        if self._resume_at is None and self.submits and self._dice.random() < PAUSES:
            gateway, owner = self._dice.choice([(1, 0), (0, 1), (1, 1)])
            names = self._dice.choice(list(GATEWAYS)), self._dice.choice(OWNERS)
            scope = Scope(names[0] if gateway else None, names[1] if owner else None)
            self._resume_at = time.monotonic() + self._dice.uniform(*PAUSE_SECONDS)
            start_pause(database, scope, OPERATOR)
            self.pauses.append(Pause(scope, time.time()))
            move_paused_jobs(database, MOVING_SECONDS)
        elif not self.submits or (self._resume_at is not None and time.monotonic() >= self._resume_at):
            for pause in self.pauses:
                pause.until = min(pause.until, time.time())
            if list_pauses(database):
                end_pauses(database, Scope(), OPERATOR, every=True)
            self._resume_at = None
            move_resumed_jobs(database, MOVING_SECONDS)

    def _start_over_cancelled(self, database: Database) -> None:
        """Some, and in the end all for which another job waits: it would wait without an end."""
        rows = database.connection.execute(NEEDED if not self.submits else ANY_CANCELLED).fetchall()
        if not self.submits or self._dice.random() < RETRIES_OF_CANCELLED:
            for row in rows:
                if self._store.has_source(row["id"]):
                    database.one("retry_jobs", ids=[row["id"]])

    def _retry_by_hand(self, database: Database) -> None:
        for row in database.connection.execute("SELECT id, mapping FROM jobs WHERE status = 'failed'").fetchall():
            times = self.retried.get(row["id"], 0)
            if row["mapping"] == POISON and times >= RETRIES_BY_HAND:
                continue
            if self._store.has_source(row["id"]) and database.one("retry_jobs", ids=[row["id"]]):
                self.retried[row["id"]] = times + 1
