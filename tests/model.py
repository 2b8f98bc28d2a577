"""The queue in plain Python: what each statement promises, without SQL, to be compared with the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

MAX_ATTEMPTS = 3


@dataclass
class ModelJob:
    id: UUID
    priority: int
    number: int  # in the order of submission
    status: str = "queued"
    attempts: int = 0
    holder: str | None = None
    dead_letter: bool = False
    error_code: str | None = None
    waits: bool = False  # for a retry that is not due
    is_due: bool = False  # a retry whose time has come, and that no claim has made claimable yet
    lease_is_over: bool = False
    shows_progress: bool = False
    events: list[str] = field(default_factory=lambda: ["created", "queued"])

    def leave(self, status: str, event: str, error_code: str | None = None, *, dead_letter: bool = False) -> None:
        """The end of an attempt, whatever it was."""
        self.status, self.error_code, self.dead_letter = status, error_code, dead_letter
        self.holder, self.lease_is_over, self.shows_progress = None, False, False
        self.events.append(event)


@dataclass
class ModelQueue:
    jobs: dict[UUID, ModelJob] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)  # servers that are dead
    silent: set[str] = field(default_factory=set)  # servers without a heartbeat, not yet marked dead
    witnesses: set[str] = field(default_factory=set)  # servers that were heard without a gap for one heartbeat timeout
    breaker: str = "closed"
    prober: str | None = None
    trial: UUID | None = None

    def submit(self, job_id: UUID, priority: int) -> None:
        self.jobs[job_id] = ModelJob(job_id, priority, len(self.jobs))

    def claim(self, server: str, holder: str) -> ModelJob | None:
        """A claim that finds nothing tries again when it has made retries claimable."""
        job = self._claim_once(server, holder)
        promoted = self._promote_due()
        return job or (self._claim_once(server, holder) if promoted else None)

    def claim_with_completion(self, server: str, holder: str, wanted: int) -> list[ModelJob]:
        """The claim that a completion takes along is tried once, and only while the breaker is closed."""
        claims = [self._claim_once(server, holder) for _ in range(wanted)] if self.breaker == "closed" else []
        self._promote_due()
        return [job for job in claims if job]

    def _claim_once(self, server: str, holder: str) -> ModelJob | None:
        half_open = self.breaker == "half_open" and self.prober == holder and self.trial is None
        if server in self.gone or not (self.breaker == "closed" or half_open):
            return None
        ready = [job for job in self.jobs.values() if job.status == "queued" and not (job.waits or job.is_due)]
        if not ready:
            return None
        job = min(ready, key=lambda job: (-job.priority, job.number))
        job.status, job.holder, job.attempts = "processing", holder, job.attempts + 1
        job.events.append("processing")
        if half_open:
            self.trial = job.id
        return job

    def _promote_due(self) -> bool:
        due = [job for job in self.jobs.values() if job.is_due]
        for job in due:
            job.is_due = False
        return bool(due)

    def holds(self, job_id: UUID, holder: str, attempt: int) -> bool:
        job = self.jobs[job_id]
        return job.status == "processing" and (job.holder, job.attempts) == (holder, attempt)

    def extend(self, job_id: UUID) -> None:
        self.jobs[job_id].lease_is_over = False

    def report(self, job_id: UUID) -> None:
        self.extend(job_id)
        self.jobs[job_id].shows_progress = True

    def complete(self, job_id: UUID) -> None:
        self.jobs[job_id].leave("complete", "complete")
        if self.trial == job_id:
            self.breaker, self.prober, self.trial = "closed", None, None

    def fail(self, job_id: UUID, code: str, *, dead_letter: bool) -> None:
        self.jobs[job_id].leave("failed", "failed", code, dead_letter=dead_letter)
        self._trial_ends(job_id)

    def retry_later(self, job_id: UUID, *, waits: bool) -> None:
        self.jobs[job_id].leave("queued", "retry")
        self.jobs[job_id].waits, self.jobs[job_id].is_due = waits, not waits
        self._trial_ends(job_id)

    def release(self, job_id: UUID) -> None:
        self.jobs[job_id].leave("queued", "requeued")
        self.jobs[job_id].attempts -= 1
        self._trial_ends(job_id)

    def requeue(self, holder: str, *, counted: bool) -> set[UUID]:
        held = [job for job in self.jobs.values() if job.status == "processing" and job.holder == holder]
        for job in held:
            self._give_back(job, "requeued", counted=counted)
        return {job.id for job in held}

    def reclaim(self) -> set[UUID]:
        if self.witnesses - self.silent - self.gone:
            self.gone |= self.silent
            self.silent = set()
        lost = [job for job in self.jobs.values() if job.status == "processing" and self._is_lost(job)]
        for job in lost:
            self._give_back(job, "reclaimed", counted=True)
        return {job.id for job in lost}

    def retry_by_hand(self, job_id: UUID) -> bool:
        job = self.jobs[job_id]
        if job.status not in ("failed", "cancelled"):
            return False
        job.leave("queued", "retry")
        job.attempts = 0
        return True

    def cancel(self, job_id: UUID) -> bool:
        job = self.jobs[job_id]
        if job.status not in ("queued", "processing"):
            return False
        job.attempts -= job.status == "processing"
        job.leave("cancelled", "cancelled")
        job.waits = job.is_due = False
        self._trial_ends(job_id)
        return True

    def _is_lost(self, job: ModelJob) -> bool:
        assert job.holder is not None
        return job.lease_is_over or job.holder.rpartition("/")[0] in self.gone

    def _give_back(self, job: ModelJob, event: str, *, counted: bool) -> None:
        if counted and job.attempts >= MAX_ATTEMPTS:
            job.leave("failed", "failed", "UNKNOWN", dead_letter=True)
        else:
            job.leave("queued", event)
            job.attempts -= 0 if counted else 1
        self._trial_ends(job.id)

    def _trial_ends(self, job_id: UUID) -> None:
        if self.trial == job_id:
            self.breaker, self.prober, self.trial = "open", None, None
