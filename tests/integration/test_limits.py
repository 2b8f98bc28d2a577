"""Adaptive limits in the database: who decides, from which measurements, and what claims and readers see of it."""

from __future__ import annotations

import json
from pathlib import Path

from convertq.queue.adaptive_limit import Sample
from convertq.queue.breaker_state import get_breakers
from convertq.queue.limits import describe_limit, keep_up_limits
from convertq.queue.queue_events import describe
from convertq.queue.routing import Routing

from tests.conftest import Connect
from tests.integration.test_routes import Host, take_slot
from tests.jobs import Conn, config, database, insert_job, one, register_server, run, together


def declare(conn: Conn, server: str, workers: int, **limit: object) -> None:
    gateways = json.dumps([{"name": "one", "mappings": ["a", "*"], "max_calls": 0, **limit}])
    register_server(conn, server, gateways=gateways, concurrency=workers)
    Routing().keep_up(database(conn))


def measured(calls: int = 0, seconds: float = 0.1, refused: int = 0) -> dict[str, Sample]:
    sample = Sample(refused=refused)
    for _ in range(calls):
        sample.add_call(20_000, seconds)
    return {"one": sample}


def decide(conn: Conn, sample: dict[str, Sample]) -> int:
    """As if a second had passed since the last decision."""
    conn.execute("UPDATE gateway_limits SET decided_at = '-infinity'")
    keep_up_limits(database(conn), sample)
    return limit_of(conn)


def limit_of(conn: Conn) -> int:
    return int(one(conn, "SELECT max_calls FROM circuit_breaker WHERE gateway = 'one'")["max_calls"])


def test_a_limit_begins_small_and_lies_between_one_and_the_workers_or_a_fixed_limit(conn: Conn) -> None:
    declare(conn, "host:1:aaaa", 3, is_auto=True)
    assert limit_of(conn) == 3, "there are no more workers"
    declare(conn, "host:2:bbbb", 60, is_auto=True)
    assert limit_of(conn) == 3, "it was decided so"
    assert one(conn, "SELECT most_calls FROM gateway_limits")["most_calls"] == 63
    declare(conn, "host:3:cccc", 60, max_calls=2)
    assert (limit_of(conn), one(conn, "SELECT most_calls FROM gateway_limits")["most_calls"]) == (2, 2)
    conn.execute("UPDATE servers SET status = 'stopped' WHERE id < 'host:3'")
    Routing().keep_up(database(conn))
    assert limit_of(conn) == 2, "a fixed one"
    assert not conn.execute("SELECT FROM gateway_limits").fetchall()


def test_one_supervisor_decides_from_what_all_hosts_have_measured(conn: Conn, connect: Connect) -> None:
    declare(conn, "host:1:aaaa", 64, is_auto=True)
    for n in range(4):
        take_slot(conn, "host:1:aaaa", n)
    others = [connect() for _ in range(3)]
    conn.execute("UPDATE gateway_limits SET decided_at = now() + interval '1 hour'")
    together(*(lambda other=other: keep_up_limits(database(other), measured(5)) for other in others))
    assert one(conn, "SELECT count(*) AS n FROM measured_calls")["n"] == 3
    conn.execute("UPDATE gateway_limits SET decided_at = '-infinity'")
    with others[0].transaction():
        others[0].execute("SELECT FROM gateway_limits FOR NO KEY UPDATE")
        keep_up_limits(database(conn), {"one": Sample()})
        assert limit_of(conn) == 4, "another one decides, and nobody waits for it"
    assert decide(conn, {"one": Sample()}) == 8
    assert not conn.execute("SELECT FROM measured_calls").fetchall()
    assert one(conn, "SELECT count(*) AS n FROM gateway_slots")["n"] == 8
    keep_up_limits(database(conn), measured(50))
    assert limit_of(conn) == 8, "it was decided within this second"
    Routing().keep_up(database(conn))
    assert limit_of(conn) == 8, "a heartbeat changes nothing"


def test_a_lower_limit_holds_for_the_next_claim_and_calls_under_way_are_finished(
    conn: Conn, connect: Connect, tmp_path: Path
) -> None:
    declare(conn, "host:1:aaaa", 64, is_auto=True)
    for _ in range(20):
        insert_job(conn, mapping="a")
    hosts = [Host(connect(), tmp_path, "host:1:aaaa", slot, one="a") for slot in range(1, 5)]
    assert all(host.claim() for host in hosts)
    assert decide(conn, measured(refused=9)) == 2
    assert one(conn, "SELECT count(holder) AS n FROM gateway_slots")["n"] == 4, "calls are under way"
    assert [host.claim() is not None for host in hosts] == [True, True, False, False]
    assert one(conn, "SELECT count(holder) AS n FROM gateway_slots")["n"] == 2
    hosts[0].cursor.release_slot()
    assert hosts[3].claim() is not None


def test_the_limit_is_shown_with_its_reason_and_logged_when_it_is_notable(conn: Conn, tmp_path: Path) -> None:
    declare(conn, "host:1:aaaa", 64, is_auto=True)
    for n in range(4):
        take_slot(conn, "host:1:aaaa", n)
    decide(conn, measured(50, seconds=0.1))
    assert decide(conn, measured(200, seconds=0.3)) == 5
    file = tmp_path / "gateways.toml"
    file.write_text('[gateways.one]\nurl = "http://h"\nmappings = ["a"]\nmax_calls = "auto"\n')
    [view] = get_breakers(database(conn), config(GATEWAYS_FILE=file)).values()
    assert describe_limit(view, "since 14:02") == "limit 5 of 64: latency 3.0× since 14:02"
    assert (view["max_calls"], view["running_calls"]) == (5, 4)
    conn.execute("UPDATE gateway_limits SET recorded_at = recorded_at - interval '1 minute'")
    decide(conn, measured(refused=30))
    decide(conn, measured(refused=30))
    events = list(reversed(run(conn, "list_queue_events", limit=9)))
    assert [event["event_type"] for event in events] == ["limit_changed"] * 2
    assert describe(events[0]) == (
        "gateway one, limit 8, of at most 64, before: 4, growing: calls take no longer than usual"
    )
    assert events[1]["meta"]["reason"] == "30 calls refused or timed out"
