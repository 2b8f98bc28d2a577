"""DATABASE_URL: what Prisma writes is understood, and what libpq would refuse is taken out."""

from __future__ import annotations

import pytest
from convertq.queue.database.connection import application_name
from convertq.queue.database.url import parse_database_url
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
