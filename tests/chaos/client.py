"""The users of the storm: they submit through the real submission, and retry by hand what has failed."""

from __future__ import annotations

import io
import random
import threading
from uuid import UUID

import psycopg
from convertq.queue.config import read_config
from convertq.queue.database.database import Database
from convertq.queue.errors import StorageError
from convertq.queue.store import open_store
from convertq.queue.submission import SubmissionOptions, Submitter

from tests.chaos.cluster import Cluster
from tests.chaos.faulty_gateway import CURABLE, GOOD, POISON

BACKLOG = 32  # jobs that wait or run: enough that every worker always finds one
ROUND_SECONDS = 0.2
DEPENDANTS = 0.1  # of the jobs wait for the one before
RETRIES_BY_HAND = 3  # of a job that is poison


class Client(threading.Thread):
    """`submitted` has the ids whose submission was confirmed; an unconfirmed one may be there all the same."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(daemon=True)
        self.config = read_config(cluster.environment())
        self.submitted: set[UUID] = set()
        self.retried: dict[UUID, int] = {}
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
            mapping = self._dice.choices([GOOD, POISON, CURABLE], [92, 4, 4])[0]
            after = (self._good,) if self._good and self._dice.random() < DEPENDANTS else ()
            order = SubmissionOptions(
                owner="chaos", mapping=mapping, priority=self._dice.choice([0, 0, 0, 5]), after=after
            )
            submission = submitter.submit(pdf, f"{self._count}.pdf", order)
            assert submission.id is not None, submission
            self.submitted.add(submission.id)
            if mapping == GOOD:
                self._good = submission.id

    def _retry_by_hand(self, database: Database) -> None:
        for row in database.connection.execute("SELECT id, mapping FROM jobs WHERE status = 'failed'").fetchall():
            times = self.retried.get(row["id"], 0)
            if row["mapping"] == POISON and times >= RETRIES_BY_HAND:
                continue
            if self._store.has_source(row["id"]) and database.one("retry_jobs", ids=[row["id"]]):
                self.retried[row["id"]] = times + 1
