------------------------------- MODULE Lease -------------------------------
(***************************************************************************)
(* One job of convertq, several workers, and everything that can happen    *)
(* between a claim and a published result. README.md explains the names.   *)
(* Each action is one committed statement, one step of a transaction, or   *)
(* one step of a worker. TLC tries every order of them, so a worker can be *)
(* paused for any time between any two steps.                              *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Workers,        \* names of holders
    MaxAttempts,    \* RETRY_MAX_ATTEMPTS
    MaxFaults,      \* crashes, shutdowns, lost connections and failovers, together
    Store,          \* "directory" or "s3"
    NoWorker,
    \* The safeguards. Each is TRUE in convertq; the check sets one to FALSE and expects an error.
    FencedByHolder,    \* writes after the claim name the holder
    FencedByAttempt,   \* writes after the claim name the attempt
    PublishedLocked,   \* a file is published only while the transaction has locked the row
    Reclaimed          \* a job whose lease has expired is reclaimed

VARIABLES
    row,       \* the row in `jobs`: status, holder, attempt, lease, result
    lock,      \* the worker whose open transaction has locked the row
    worker,    \* what each worker does, and with which attempt
    stored,    \* directory: the attempt whose file is RESULTS_DIR/{id}.xml, 0: none; s3: all uploaded objects
    late,      \* statements of lost connections that PostgreSQL may still execute
    faults,    \* how many faults there were
    visible,   \* for the invariants: every result that a reader could have downloaded
    outsider   \* for the invariants: whether an attempt without the lease has changed anything

vars == <<row, lock, worker, stored, late, faults, visible, outsider>>

Idle == [step |-> "idle", attempt |-> 0]
Terminal == {"complete", "failed", "cancelled"}

Init ==
    /\ row = [status |-> "queued", holder |-> NoWorker, attempt |-> 0, lease |-> "none", result |-> 0]
    /\ lock = NoWorker
    /\ worker = [w \in Workers |-> Idle]
    /\ stored = IF Store = "s3" THEN {} ELSE 0
    /\ late = {}
    /\ faults = 0
    /\ visible = {}
    /\ outsider = FALSE

----------------------------------------------------------------------------
(* The fence: the condition of every write after the claim.                *)

HasLease(w, attempt) == row.status = "processing" /\ row.holder = w /\ row.attempt = attempt

Fence(w, attempt) ==
    /\ FencedByHolder => row.status = "processing" /\ row.holder = w
    /\ FencedByAttempt => row.attempt = attempt

Unlocked == lock = NoWorker
Ended(status, result) == [row EXCEPT !.status = status, !.holder = NoWorker, !.lease = "none", !.result = result]
Become(w, step) == worker' = [worker EXCEPT ![w].step = step]
Drop(w) == worker' = [worker EXCEPT ![w] = Idle]

(* What a reader downloads: the file of a complete job, or the object that its row names. *)
Readable(r, s) == IF r.status # "complete" THEN {} ELSE IF Store = "s3" THEN {r.result} ELSE {s}
See(r, s) == visible' = visible \union Readable(r, s)

----------------------------------------------------------------------------
(* The queue *)

Claim(w) ==                                       \* complete_and_claim.sql
    /\ row.status = "queued" /\ Unlocked /\ worker[w].step = "idle"
    /\ row' = [row EXCEPT !.status = "processing", !.holder = w, !.attempt = @ + 1, !.lease = "valid"]
    /\ worker' = [worker EXCEPT ![w] = [step |-> "converting", attempt |-> row.attempt + 1]]
    /\ UNCHANGED <<lock, stored, late, faults, visible, outsider>>

Extend(w) ==                                      \* extend_lease.sql; no row back: the worker drops the attempt
    /\ worker[w].step \in {"converting", "converted"} /\ Unlocked
    /\ IF Fence(w, worker[w].attempt) /\ row.status = "processing"
       THEN row' = [row EXCEPT !.lease = "valid"] /\ UNCHANGED worker
       ELSE Drop(w) /\ UNCHANGED row
    /\ UNCHANGED <<lock, stored, late, faults, visible, outsider>>

Expire ==                                         \* time passes
    /\ row.lease = "valid"
    /\ row' = [row EXCEPT !.lease = "expired"]
    /\ UNCHANGED <<lock, worker, stored, late, faults, visible, outsider>>

Reclaim ==                                        \* reclaim_jobs.sql; SKIP LOCKED
    /\ Reclaimed /\ row.lease = "expired" /\ Unlocked
    /\ row' = Ended(IF row.attempt >= MaxAttempts THEN "failed" ELSE "queued", 0)
    /\ UNCHANGED <<lock, worker, stored, late, faults, visible, outsider>>

Cancel ==                                         \* cancel_jobs.sql; waits for the lock
    /\ row.status \in {"queued", "processing"} /\ Unlocked
    /\ row' = Ended("cancelled", 0)
    /\ UNCHANGED <<lock, worker, stored, late, faults, visible, outsider>>

RemoveCancelled ==                                \* lock_cancelled_jobs.sql, then the file is removed
    /\ Store = "directory" /\ row.status = "cancelled" /\ Unlocked /\ stored # 0
    /\ stored' = 0
    /\ UNCHANGED <<row, lock, worker, late, faults, visible, outsider>>

----------------------------------------------------------------------------
(* An attempt *)

Convert(w) ==                                     \* the gateway call, or a leftover in its place; then the upload to S3
    /\ worker[w].step = "converting"
    /\ Become(w, "converted")
    /\ stored' = IF Store = "s3" THEN stored \union {worker[w].attempt} ELSE stored
    /\ UNCHANGED <<row, lock, late, faults, visible, outsider>>

Lock(w) ==                                        \* the first statement of the completing transaction
    /\ worker[w].step = "converted" /\ Unlocked
    /\ IF Fence(w, worker[w].attempt) THEN lock' = w /\ Become(w, "locked")
       ELSE Drop(w) /\ UNCHANGED lock
    /\ UNCHANGED <<row, stored, late, faults, visible, outsider>>

Link(w) ==                                        \* a link never replaces a file: a leftover is as good
    /\ stored' = IF stored = 0 THEN worker[w].attempt ELSE stored
    /\ outsider' = (outsider \/ ~HasLease(w, worker[w].attempt))
    /\ See(row, stored')

Publish(w) ==
    /\ Store = "directory" /\ worker[w].step = "locked"
    /\ Link(w) /\ Become(w, "published")
    /\ UNCHANGED <<row, lock, late, faults>>

PublishWithoutLock(w) ==                          \* only where the safeguard is removed
    /\ ~PublishedLocked /\ Store = "directory" /\ worker[w].step = "converted"
    /\ Link(w)
    /\ UNCHANGED <<row, lock, worker, late, faults>>

ReadyToCommit(w) == worker[w].step = (IF Store = "s3" THEN "locked" ELSE "published")

Complete(w) ==
    /\ row' = Ended("complete", worker[w].attempt)
    /\ outsider' = (outsider \/ ~HasLease(w, worker[w].attempt))
    /\ lock' = NoWorker
    /\ See(row', stored)

Commit(w) ==
    /\ ReadyToCommit(w)
    /\ Complete(w) /\ Drop(w)
    /\ UNCHANGED <<stored, late, faults>>

WriteFailure(w, attempt) ==                       \* schedule_retry.sql, or fail_job.sql without an attempt left
    IF Fence(w, attempt)
    THEN /\ row' = Ended(IF row.attempt >= MaxAttempts THEN "failed" ELSE "queued", 0)
         /\ outsider' = (outsider \/ ~HasLease(w, attempt))
    ELSE UNCHANGED <<row, outsider>>

Fail(w) ==
    /\ worker[w].step = "converting" /\ Unlocked
    /\ WriteFailure(w, worker[w].attempt) /\ Drop(w)
    /\ UNCHANGED <<lock, stored, late, faults, visible>>

----------------------------------------------------------------------------
(* Faults. A transaction whose session has ended is rolled back; a file that it published stays, as a leftover. *)

Fault == faults < MaxFaults /\ faults' = faults + 1
Rollback(w) == lock' = IF lock = w THEN NoWorker ELSE lock

Crash(w) ==                                       \* the process dies; another one may have its name
    /\ Fault /\ worker[w].step # "idle"
    /\ Drop(w) /\ Rollback(w)
    /\ UNCHANGED <<row, stored, late, visible, outsider>>

Requeue(w) ==                                     \* requeue_job.sql, at a shutdown: the attempt does not count
    /\ Fault /\ worker[w].step \in {"converting", "converted"} /\ Unlocked
    /\ IF Fence(w, worker[w].attempt)
       THEN /\ row' = [Ended("queued", 0) EXCEPT !.attempt = row.attempt - 1]
            /\ outsider' = (outsider \/ ~HasLease(w, worker[w].attempt))
       ELSE UNCHANGED <<row, outsider>>
    /\ Drop(w)
    /\ UNCHANGED <<lock, stored, late, visible>>

CutTransaction(w) ==                              \* the worker connects again, and tries again
    /\ Fault /\ lock = w
    /\ Become(w, "converted") /\ Rollback(w)
    /\ UNCHANGED <<row, stored, late, visible, outsider>>

LoseAnswer(w) ==                                  \* committed, but the worker does not know; it tries again
    /\ Fault /\ ReadyToCommit(w)
    /\ Complete(w) /\ Become(w, "converted")
    /\ UNCHANGED <<stored, late>>

DelayFailure(w) ==                                \* the connection is lost; its statement arrives later, or never
    /\ Fault /\ worker[w].step = "converting"
    /\ late' = late \union {[worker |-> w, attempt |-> worker[w].attempt]}
    /\ Drop(w)
    /\ UNCHANGED <<row, lock, stored, visible, outsider>>

Deliver(statement) ==
    /\ statement \in late /\ Unlocked
    /\ late' = late \ {statement}
    /\ WriteFailure(statement.worker, statement.attempt)
    /\ UNCHANGED <<lock, worker, stored, faults, visible>>

Failover ==                                       \* a synchronous standby takes over: every session ends, no commit is lost
    /\ Fault
    /\ lock' = NoWorker /\ late' = {}
    /\ worker' = [w \in Workers |->
           IF worker[w].step \in {"locked", "published"} THEN [worker[w] EXCEPT !.step = "converted"] ELSE worker[w]]
    /\ UNCHANGED <<row, stored, visible, outsider>>

----------------------------------------------------------------------------
Work(w) == Claim(w) \/ Convert(w) \/ Lock(w) \/ Publish(w) \/ Commit(w)
Next ==
    \/ \E w \in Workers : Work(w) \/ Extend(w) \/ Fail(w) \/ PublishWithoutLock(w)
    \/ \E w \in Workers : Crash(w) \/ Requeue(w) \/ CutTransaction(w) \/ LoseAnswer(w) \/ DelayFailure(w)
    \/ Expire \/ Reclaim \/ Cancel \/ RemoveCancelled \/ Failover
    \/ \E statement \in late : Deliver(statement)

(* Each worker goes on some time, leases expire some time, and somebody reclaims. Nothing else is promised. *)
Spec ==
    /\ Init /\ [][Next]_vars
    /\ \A w \in Workers : WF_vars(Claim(w)) /\ WF_vars(Convert(w)) /\ WF_vars(Lock(w)) /\ WF_vars(Publish(w))
                          /\ WF_vars(Commit(w))
    /\ WF_vars(Expire) /\ WF_vars(Reclaim) /\ WF_vars(RemoveCancelled)

----------------------------------------------------------------------------
AtMostOneResult == Cardinality(visible) <= 1
CompleteHasItsResult ==
    row.status = "complete" => IF Store = "s3" THEN row.result \in stored ELSE stored # 0
OnlyTheHolderWrites == ~outsider
LeasedWhileProcessing == (row.status = "processing") <=> (row.holder # NoWorker)
AttemptsAreLimited == row.attempt <= MaxAttempts

EndsForGood == [][row.status \in Terminal => row' = row]_vars
NoJobIsStuck == <>(row.status \in Terminal)
NothingStaysOfCancelled == <>[](row.status = "cancelled" => Store = "s3" \/ stored = 0)
=============================================================================
