"""doctor's checks of plans, leases, queue, servers, breaker and files, each seen both ways."""

from __future__ import annotations

from uuid import uuid4

from convertq.queue.doctor import plans, queue
from convertq.queue.doctor.finding import Limits

from tests.conftest import Dirs
from tests.findings import BAD, OK, WARN, MakeContext, find, state_of
from tests.jobs import (
    HOLDER,
    Conn,
    claimed,
    expire_lease,
    insert_job,
    queued_job,
    register_server,
    register_witness,
    set_breaker,
    status_of,
)


def test_plans(make_context: MakeContext, conn: Conn) -> None:
    assert state_of(plans.check_plans, make_context()) is OK
    conn.execute("SET session_replication_role = replica")
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, queued_at) SELECT 1, md5(n::text), 'queued', now()"
        " FROM generate_series(1, 20000) n"
    )
    conn.execute("ANALYZE jobs")
    [finding] = find(plans.check_plans, make_context())
    assert (finding.state, finding.what) == (OK, "4 hot statements use their indexes on 20000 rows")
    conn.execute("DROP INDEX jobs_claimable")
    [finding] = find(plans.check_plans, make_context())
    assert (finding.state, finding.what) == (BAD, "complete_and_claim reads the whole of jobs (20000 rows)")


def test_leases_that_ran_out_are_given_back_by_fix(make_context: MakeContext, conn: Conn) -> None:
    job = claimed(conn)
    assert state_of(queue.check_leases, make_context()) is OK
    expire_lease(conn, job)
    assert state_of(queue.check_leases, make_context()) is BAD
    [finding] = find(queue.check_leases, make_context(), fix=True)
    assert (finding.state, finding.fixed) == (OK, "reclaimed 1")
    assert status_of(conn, job) == "queued"


def test_a_queue_that_stands_still(make_context: MakeContext, conn: Conn) -> None:
    assert state_of(queue.check_queue, make_context()) is OK
    insert_job(conn)
    [finding] = find(queue.check_queue, make_context())
    assert (finding.state, finding.what) == (BAD, "1 queued, and no server is active")
    register_server(conn)
    assert state_of(queue.check_queue, make_context()) is OK
    conn.execute("UPDATE jobs SET queued_at = now() - interval '11 min'")
    [finding] = find(queue.check_queue, make_context())
    assert (finding.state, finding.what) == (BAD, "1 queued; the first waits for 11 min, and no worker claims")
    set_breaker(conn, "open")
    assert state_of(queue.check_queue, make_context()) is OK  # the breaker's own line says it
    set_breaker(conn, "closed")
    claimed(conn)
    assert state_of(queue.check_queue, make_context()) is WARN  # a backlog


def test_servers_that_are_silent_are_marked_dead_by_fix_where_somebody_could_hear_them(
    make_context: MakeContext, conn: Conn
) -> None:
    register_server(conn)
    assert state_of(queue.check_servers, make_context()) is OK
    conn.execute("UPDATE servers SET last_heartbeat_at = now() - interval '1 hour'")
    assert state_of(queue.check_servers, make_context()) is BAD
    [finding] = find(queue.check_servers, make_context(), fix=True)
    assert (finding.state, finding.remedy) == (BAD, "convertq reclaim requeues their jobs; look at those hosts")
    register_witness(conn)
    [finding] = find(queue.check_servers, make_context(), fix=True)
    assert (finding.state, finding.what) == (WARN, "1 active, 1 died within a day")


def test_breaker(make_context: MakeContext, conn: Conn) -> None:
    assert state_of(queue.check_breaker, make_context()) is OK
    set_breaker(conn, "open")
    assert state_of(queue.check_breaker, make_context()) is BAD
    set_breaker(conn, "half_open", probe_by=HOLDER)
    assert state_of(queue.check_breaker, make_context()) is BAD
    set_breaker(conn, "open", by_hand=True)
    [finding] = find(queue.check_breaker, make_context())
    assert (finding.state, finding.remedy) == (WARN, "convertq breaker close")


def test_sources(make_context: MakeContext, conn: Conn, dirs: Dirs) -> None:
    queued_job(conn, dirs)
    assert state_of(queue.check_sources, make_context()) is OK
    job_id = insert_job(conn)
    [finding] = find(queue.check_sources, make_context())
    assert (finding.state, finding.what) == (BAD, f"1 queued without a source, such as {job_id}")


def test_of_a_long_queue_those_that_come_next_are_looked_at_as_well_as_the_newest(
    make_context: MakeContext, conn: Conn, dirs: Dirs
) -> None:
    first = insert_job(conn, created_at="yesterday")
    for _ in range(3):
        queued_job(conn, dirs)
    [finding] = find(queue.check_sources, make_context(Limits(sample_jobs=1)))
    assert (finding.state, finding.what) == (BAD, f"1 queued without a source, such as {first}")


def test_results(make_context: MakeContext, conn: Conn, dirs: Dirs) -> None:
    job_id = uuid4()
    (dirs.results / f"{job_id}.xml").write_text("<x/>")
    insert_job(conn, "complete", id=job_id, result_path="x")
    insert_job(conn, "complete")  # expired
    assert state_of(queue.check_results, make_context()) is OK
    insert_job(conn, "complete", result_path="x")
    assert state_of(queue.check_results, make_context()) is BAD


def test_owners(make_context: MakeContext, conn: Conn) -> None:
    register_server(conn)
    assert state_of(queue.check_owners, make_context()) is OK
    conn.execute("UPDATE fair_share SET takes_turns = true")  # as by a server that started later, and has ended
    [finding] = find(queue.check_owners, make_context())
    assert finding.state is WARN
    assert finding.what == (
        "FAIR_SHARE=1, OWNER_MAX_RUNNING=0 is in force, and 1 server started with others: host:1:aaaa"
    )
