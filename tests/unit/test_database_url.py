"""DATABASE_URL: what Prisma writes is understood, and what libpq would refuse is taken out."""

from __future__ import annotations

from pathlib import Path

import pytest
from convertq.queue.database.connection import application_name
from convertq.queue.database.url import parse_database_url, parse_read_url
from convertq.queue.masked_url import masked
from psycopg.conninfo import conninfo_to_dict


def test_without_a_schema_it_is_public() -> None:
    assert parse_database_url("postgresql://h/db").schema == "public"


@pytest.mark.parametrize("name", ["tenant", "Tenant_1", "_x", "a" * 63])
def test_the_schema_is_taken_out_for_libpq(name: str) -> None:
    url = parse_database_url(f"postgresql://u:p@h:5433/db?schema={name}&sslmode=prefer")
    assert url.schema == name
    assert conninfo_to_dict(url.conninfo) == {
        "user": "u", "password": "p", "host": "h", "port": "5433", "dbname": "db", "sslmode": "prefer",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", 'a"b', "a.b", "ä", "a" * 64, "a%22; DROP", "public\n"])
def test_a_schema_that_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="its schema"):
        parse_database_url(f"postgresql://h/db?schema={name.replace(chr(10), '%0A')}")


def test_all_of_prismas_own_parameters_are_dropped() -> None:
    ours = "connection_limit=5&pgbouncer=true&pool_timeout=3&socket_timeout=9&statement_cache_size=0&sslaccept=strict"
    url = parse_database_url(f"postgres://h/db?{ours}&connect_timeout=7")
    assert conninfo_to_dict(url.conninfo) == {"host": "h", "dbname": "db", "connect_timeout": "7"}


@pytest.mark.parametrize(("text", "pooled"), [("", False), ("?pgbouncer=true", True), ("?pgbouncer=false", False)])
def test_a_pooler_in_between_is_known_by_its_parameter(text: str, pooled: bool) -> None:
    assert parse_database_url(f"postgresql://h/db{text}").pooled is pooled


@pytest.mark.parametrize(("text", "prepares"), [("", True), ("?statement_cache_size=0", False)])
def test_nothing_is_prepared_behind_a_pooler_if_prismas_parameter_says_so(text: str, prepares: bool) -> None:
    assert parse_database_url(f"postgresql://h/db{text}").prepares is prepares


def test_escaped_values_reach_libpq_as_they_were_written() -> None:
    url = parse_database_url("postgresql://u:a%26b%3Fc@/db?host=%2Frun%2Fpg&schema=x&options=-c%20geqo%3Doff")
    known = conninfo_to_dict(url.conninfo)
    assert (known["password"], known["host"], known["options"]) == ("a&b?c", "/run/pg", "-c geqo=off")


@pytest.mark.parametrize("text", ["postgresql:///db", "postgresql:///db?schema=x", "postgresql:///db?host=/run/pg"])
def test_a_url_without_a_host_is_as_good_as_for_libpq(text: str) -> None:
    assert conninfo_to_dict(parse_database_url(text).conninfo)["dbname"] == "db"


@pytest.mark.parametrize("password", ["p#ss", "p?ss", "#", "?x=y&schema=other"])
def test_a_password_may_hold_what_ends_an_http_url(password: str) -> None:
    url = parse_database_url(f"postgresql://u:{password}@h/db?schema=tenant")
    assert url.schema == "tenant"
    assert conninfo_to_dict(url.conninfo)["password"] == password


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("postgresql://h:abc/db", "its port must be a number from 1 to 65535"),
        ("postgresql://h:99999/db", "its port must be a number from 1 to 65535"),
        ("postgresql://h:0/db", "its port must be a number from 1 to 65535"),
        ("postgresql:///db?host=a,b,c&port=1,2", "could not match 2 port numbers to 3 hosts"),
        ("postgresql://h/db?sslmode=maybe", "invalid sslmode value"),
        ("postgresql://h/db?target_session_attrs=best", "invalid target_session_attrs value"),
        ("postgresql://h/db?connect_timeout=soon", "its connect_timeout must be a whole number"),
        ("postgresql://h/db?keepalives_idle=x", "its keepalives_idle must be a whole number"),
        ("postgresql://h/db?hostaddr=here", "its hostaddr must be an IP address"),
        ("postgresql:///db?service=no_such", 'definition of service "no_such" not found'),
    ],
)
def test_what_libpq_refuses_before_it_connects_is_a_wrong_value(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_database_url(text)


@pytest.mark.parametrize("text", ["postgresql://a:1,b:2/db", "postgresql://a,b:2/db", "postgresql://[::1]:5432/db"])
def test_several_hosts_and_addresses_are_accepted_without_asking_the_network(text: str) -> None:
    assert conninfo_to_dict(parse_database_url(text).conninfo)["dbname"] == "db"


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("postgresql://a,b/db", "read-write"),
        ("postgresql://a:1,b:2/db?sslmode=require&schema=x", "read-write"),
        ("postgresql:///db?hostaddr=10.0.0.1,10.0.0.2", "read-write"),
        ("postgresql://a,b/db?target_session_attrs=any", "any"),
        ("postgresql://a,b/db?target_session_attrs=primary", "primary"),
        ("postgresql://a/db", None),
    ],
)
def test_of_several_hosts_the_one_that_accepts_writes_is_used_unless_the_url_chooses(
    text: str, chosen: str | None
) -> None:
    assert conninfo_to_dict(parse_database_url(text).conninfo).get("target_session_attrs") == chosen


def test_of_several_replicas_a_standby_is_preferred() -> None:
    assert conninfo_to_dict(parse_read_url("postgresql://a,b/db").conninfo)["target_session_attrs"] == "prefer-standby"


def test_the_hosts_of_a_service_file_are_known_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = tmp_path / "service.conf"
    service.write_text("[pair]\nhost=a,b\nport=1,2\ndbname=db\nsslmode=require\n")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    url = parse_database_url("postgresql:///?service=pair")
    assert (url.shown, url.host_parameters) == ("a:1,b:2/db", {"host": "a,b", "port": "1,2"})
    assert conninfo_to_dict(url.conninfo)["target_session_attrs"] == "read-write"


def test_a_host_that_was_lost_is_tried_last() -> None:
    url = parse_database_url("postgresql://a:1,b:2,c:3/db")
    assert url.trying_last(url.host_of("a", 1)).host_parameters["host"] == "b,c,a"
    assert url.trying_last(url.host_of("b", 2)).host_parameters["port"] == "1,3,2"
    assert url.trying_last(url.host_of("x", 9)).hosts == url.hosts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:hunter2@a:1,b/db", "a:1,b:5432/db"),
        ("postgresql:///db?host=a,b&port=7", "a:7,b:7/db"),
        ("postgresql:///db?hostaddr=10.0.0.1", "10.0.0.1:5432/db"),
    ],
)
def test_people_see_every_host_with_its_port(text: str, shown: str) -> None:
    assert parse_database_url(text).shown == shown


def test_several_hosts_are_shown_without_the_password() -> None:
    shown = masked("postgresql://u:hunter2@a:1,b:2/db?sslpassword=hunter2&passfile=/x")
    assert shown == "postgresql://u:***@a:1,b:2/db?sslpassword=***&passfile=/x"


def test_what_libpq_does_not_know_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="colour"):
        parse_database_url("postgresql://h/db?colour=blue")


@pytest.mark.parametrize("text", ["mysql://h/db", "h/db", "", "host=h dbname=db"])
def test_anything_but_a_postgresql_url_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="must be postgresql://user:password@host:port/database"):
        parse_database_url(text)


def test_what_people_see_says_where_and_not_the_password() -> None:
    url = parse_database_url("postgresql://u:hunter2@h:5433/db")
    assert url.shown == "h:5433/db"
    assert "hunter2" not in repr(url)


@pytest.mark.parametrize("server", ["host:1:aaaa", "h" * 200 + ":1:aaaa", "hö" * 60 + ":1:aaaa"])
@pytest.mark.parametrize("slot", ["1", "1000", "supervisor"])
def test_the_slot_survives_in_the_name_of_a_session(server: str, slot: str) -> None:
    name = application_name(f"{server}/{slot}")
    assert name.startswith("convertq:")
    assert name.endswith(f":1:aaaa/{slot}")
    assert len(name.encode()) <= 63
