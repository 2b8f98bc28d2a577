"""Routes and slots in the database: who gets which job, from which gateway, beside whom."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from convertq.queue.claim import ClaimCursor
from convertq.queue.route_cursor import RouteCursor
from convertq.queue.routing import Routing
from convertq.queue.scan_budget import ScanBudget

from tests.conftest import Connect
from tests.jobs import Conn, config, database, insert_job, one, register_server, row_of, run, together
from tests.waiting import Row

ROUTES = ("one", "two")


def declare(conn: Conn, server: str = "host:1:aaaa", limit: int = 0, **mappings: Sequence[str]) -> str:
    """A server that names these mappings for its gateways; the first also gets what nobody knows."""
    gateways = [{"name": name, "mappings": list(each), "max_calls": limit} for name, each in mappings.items()]
    gateways[0]["mappings"] = [*mappings[next(iter(mappings))], "*"]
    register_server(conn, server, gateways=json.dumps(gateways))
    Routing().keep_up(database(conn))
    return server


class Host:
    """One worker of a host with its own file."""

    def __init__(self, conn: Conn, folder: Path, server: str = "host:1:aaaa", slot: int = 1, **mappings: str) -> None:
        file = folder / f"{'-'.join(mappings)}.toml"
        file.write_text("".join(f'[gateways.{n}]\nurl = "http://h"\nmappings = ["{m}"]\n' for n, m in mappings.items()))
        self.server, self.holder, self.probed, self.closed = server, f"{server}/{slot}", [], []  # type: ignore[var-annotated]
        self.cursor = RouteCursor(
            database(conn), config(GATEWAYS_FILE=file), {name: ScanBudget() for name in mappings}, self.probe,
            self.closed.append,
        )  # fmt: skip

    def probe(self, gateway: str) -> bool:
        self.probed.append(gateway)
        return False

    def claim(self) -> UUID | None:
        job = self.cursor.claim_job(self.server, self.holder).job
        return None if job is None else job.id


def test_the_order_holds_over_all_gateways_that_may_be_called(conn: Conn, tmp_path: Path) -> None:
    declare(conn, one=["a"], two=["b"])
    host = Host(conn, tmp_path, one="a", two="b")
    jobs = [insert_job(conn, mapping="ab"[n % 2], created_at=f"2020-01-0{n + 1}") for n in range(4)]
    urgent = insert_job(conn, mapping="b", priority=1)
    assert [row_of(conn, job)["route"] for job in jobs] == ["one", "two", "one", "two"]
    assert [host.claim(), host.claim()] == [urgent, jobs[0]]
    conn.execute(
        "UPDATE circuit_breaker SET state = 'open', opened_at = now(), probe_after = now() WHERE gateway = 'two'"
    )
    assert [host.claim(), host.claim()] == [jobs[2], None]
    assert set(host.probed) == {"two"}
    assert host.cursor.claim_job(host.server, host.holder).state.breaker == "closed"


def test_what_is_promoted_is_claimed_from_its_own_gateway(conn: Conn, tmp_path: Path) -> None:
    declare(conn, one=["a"], two=["b"])
    job = insert_job(conn, mapping="b", retry_after="yesterday")
    assert Host(conn, tmp_path, one="a", two="b").claim() == job


def test_mappings_that_only_others_know_are_left_to_them_and_unknown_ones_are_not(conn: Conn, tmp_path: Path) -> None:
    declare(conn, one=["a", "m"])
    others, mine = insert_job(conn, mapping="m"), insert_job(conn, mapping="a")
    unknown = insert_job(conn, mapping="nobody's")
    host = Host(conn, tmp_path, one="a")
    assert [host.claim(), host.claim(), host.claim()] == [mine, unknown, None]
    assert row_of(conn, others)["status"] == "queued"


def test_queued_jobs_follow_their_mapping_and_so_do_those_that_appear_late(conn: Conn, connect: Connect) -> None:
    declare(conn, one=["a"], two=["b"])
    jobs = [insert_job(conn, mapping="a", priority=n % 3) for n in range(7)]
    waiting = insert_job(conn, mapping="a", retry_after="tomorrow")
    late = connect()
    late.execute("BEGIN")
    open_job = insert_job(late, mapping="a")

    declare(conn, "host:2:bbbb", three=["a"])
    assert {row_of(conn, job)["route"] for job in jobs} == {"three"}
    assert not one(conn, "SELECT jobs_follow FROM mapping_routes WHERE mapping = 'a'")["jobs_follow"]
    late.execute("COMMIT")
    assert row_of(conn, open_job)["route"] == "one", "it was written before the change was visible"
    Routing().keep_up(database(conn))
    assert row_of(conn, open_job)["route"] == "three"
    assert one(conn, "SELECT jobs_follow FROM mapping_routes WHERE mapping = 'a'")["jobs_follow"]
    conn.execute("UPDATE jobs SET retry_after = now() - interval '1 s' WHERE id = %s", [waiting])
    run(conn, "promote_due_jobs", due_after="-infinity")
    assert row_of(conn, waiting)["route"] == "three"

    conn.execute("UPDATE servers SET status = 'dead' WHERE id = 'host:2:bbbb'")
    Routing().keep_up(database(conn))
    assert {row_of(conn, job)["route"] for job in jobs} == {"one"}, "the server that is left decides"


def test_no_more_slots_are_taken_than_allowed_by_workers_that_claim_at_once(
    conn: Conn, connect: Connect, tmp_path: Path
) -> None:
    server = declare(conn, limit=2, one=["a"])
    for _ in range(6):
        insert_job(conn, mapping="a")
    hosts = [Host(connect(), tmp_path, server, slot, one="a") for slot in range(1, 5)]
    claims = together(*(host.claim for host in hosts))
    assert sum(job is not None for job in claims) == 2
    assert one(conn, "SELECT count(holder) AS n FROM gateway_slots")["n"] == 2
    running = [host for host, job in zip(hosts, claims, strict=True) if job]
    idle = [host for host, job in zip(hosts, claims, strict=True) if not job]
    assert idle[0].claim() is None
    running[0].cursor.release_slot()
    assert running[0].closed == ["one"], "its connection is closed first"
    assert idle[0].claim() is not None
    assert running[1].claim() is not None, "a slot is kept from job to job"


def take_slot(conn: Conn, server: str, worker: int) -> list[Row]:
    return run(conn, "take_slot", gateway="one", holder=f"{server}/{worker}", server=server)


def holders(conn: Conn) -> list[str | None]:
    return [row["holder"] for row in conn.execute("SELECT holder FROM gateway_slots ORDER BY 1")]


def test_a_lower_limit_waits_for_calls_from_before_it(conn: Conn) -> None:
    server = declare(conn, limit=3, one=["a"])

    def take(n: int) -> list[int]:
        return [row["number"] for row in take_slot(conn, server, n)]

    assert [take(1), take(2), take(3), take(4)] == [[1], [2], [3], []]
    declare(conn, "host:2:bbbb", limit=2, one=["a"])
    run(conn, "release_slots", holder=f"{server}/1")
    assert take(4) == [], "slots 2 and 3 are taken, and two are allowed"
    run(conn, "release_slots", holder=f"{server}/2")
    assert take(4) == [1]
    assert take(5) == []
    conn.execute("UPDATE servers SET status = 'stopped' WHERE id = 'host:2:bbbb'")
    Routing().keep_up(database(conn))
    assert take(5) == [2], "the limit of the server that is left"


@pytest.mark.parametrize("status", ["dead", "stopped"])
def test_a_server_that_has_ended_holds_no_slot(conn: Conn, status: str) -> None:
    server, other = declare(conn, limit=2, one=["a"]), declare(conn, "host:1:aaaaa", limit=2, one=["a"])
    take_slot(conn, server, 1)
    take_slot(conn, other, 1)
    conn.execute("UPDATE servers SET status = %s WHERE id = %s", [status, server])
    assert holders(conn) == [f"{other}/1", None]
    assert take_slot(conn, server, 1) == [], "nor do its workers take one, who may not know it yet"


def test_a_slot_that_was_taken_while_its_server_was_marked_dead_is_freed(conn: Conn, connect: Connect) -> None:
    server = declare(conn, limit=2, one=["a"])
    declare(conn, "host:2:bbbb", limit=2, one=["a"])
    other = connect()
    with other.transaction():
        assert take_slot(other, server, 1)
        conn.execute("UPDATE servers SET status = 'dead' WHERE id = %s", [server])
    assert holders(conn) == [f"{server}/1", None]
    Routing().keep_up(database(conn))
    assert holders(conn) == [None, None]


def test_nothing_is_claimed_from_a_limited_gateway_without_its_slot(conn: Conn) -> None:
    """Whatever the worker believes: the claim itself requires the slot."""
    server = declare(conn, limit=1, one=["a"])
    job = insert_job(conn, mapping="a")
    cursor = ClaimCursor(database(conn), config(), route="one")
    claim = cursor.claim_job(server, f"{server}/1")
    assert (claim.job, claim.state.is_limited) == (None, True)
    take_slot(conn, server, 1)
    claimed = cursor.claim_job(server, f"{server}/1").job
    assert claimed is not None
    assert (claimed.id, claimed.route) == (job, "one")
