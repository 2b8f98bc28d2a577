"""The doctor: every check in its order, each as far as those before it allow, and the remedies that it applies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import psycopg
from convertq.queue.config import Config, ConfigError, read_config
from convertq.queue.database.connection import connect
from convertq.queue.database.database import Database
from convertq.queue.database.errors import OWN_LIMIT_IS_REACHED, is_full
from convertq.queue.doctor import host, plans, queue, replication, server, sessions
from convertq.queue.doctor.finding import CheckContext, Finding, State, bad, ok, warn
from convertq.queue.errors import one_line
from convertq.queue.settings import SETTINGS
from convertq.queue.store import open_store

Check = Callable[[CheckContext], Finding | list[Finding]]

HOST_CHECKS: tuple[Check, ...] = (
    host.check_heartbeat, host.check_directories, host.check_disk, host.check_descriptors, host.check_gateway,
)  # fmt: skip
SERVER_CHECKS: tuple[Check, ...] = (
    server.check_database, server.check_version, server.check_encoding, server.check_clock, server.check_pooler,
    replication.check_replication, replication.check_direct, replication.check_replica,
    server.check_connections, server.check_autovacuum, sessions.check_idle_sessions,
)  # fmt: skip
TABLE_CHECKS: tuple[Check, ...] = (
    sessions.check_vacuum, plans.check_plans, queue.check_leases, queue.check_servers, queue.check_breaker,
    queue.check_routes, queue.check_owners, queue.check_pauses, queue.check_queue, queue.check_history,
    queue.check_sources, queue.check_results,
)  # fmt: skip


def examine(environment: Mapping[str, str], *, fix: bool, application_name: str) -> Iterator[Finding]:
    """Yields each finding as soon as it is made. Impossible checks are left out; an earlier finding says why."""
    config, problems = usable_configuration(environment)
    yield from [bad("configuration", problem, "see convertq config") for problem in problems]
    if config is None:
        return
    if not problems:
        given = sum(bool(environment.get(setting.variable)) for setting in SETTINGS)
        yield ok("configuration", f"{given} of {len(SETTINGS)} settings are given, the rest by default")
    context = CheckContext(config, open_store(config))
    yield from run_checks(HOST_CHECKS, context, fix=fix)
    try:
        context.connection = Database(connect(config.database, application_name), config.database.schema)
    except psycopg.Error as error:
        yield bad("database", f"{config.database.shown}: {one_line(str(error))}", connection_remedy(error))
        return
    try:
        yield from examine_database(context, fix=fix)
    finally:
        context.connection.close()


def connection_remedy(error: psycopg.Error) -> str:
    if not is_full(error):
        return "check DATABASE_URL, and that PostgreSQL runs"
    has_own_limit = any(words in str(error) for words in OWN_LIMIT_IS_REACHED)
    return server.make_room("that limit" if has_own_limit else "max_connections")


def examine_database(context: CheckContext, *, fix: bool) -> Iterator[Finding]:
    inspect_server(context)
    yield from run_checks(SERVER_CHECKS, context, fix=fix)
    [schema] = run_checks((server.check_schema,), context, fix=fix)
    yield schema
    if schema.state is not State.BAD:
        yield from run_checks(TABLE_CHECKS, context, fix=fix)


def inspect_server(context: CheckContext) -> None:
    """Measures twice: the first answer includes the planning."""
    context.database.check_limits()
    for _ in range(2):
        began, measured_at = time.monotonic(), context.clock()
        context.server = context.database.run("inspect_server")[0]
        context.latency_seconds = time.monotonic() - began
        context.measured_at = measured_at + context.latency_seconds / 2


def run_checks(checks: tuple[Check, ...], context: CheckContext, *, fix: bool) -> Iterator[Finding]:
    for check in checks:
        findings = run_check(check, context)
        if fix and (remedies := {each.fix for each in findings if each.fix}):
            findings = apply_remedies(check, remedies, context)
        yield from findings


def apply_remedies(check: Check, remedies: set[Callable[[CheckContext], str]], context: CheckContext) -> list[Finding]:
    """Repeats the check afterwards, so that what is still wrong is reported."""
    try:
        did = "; ".join(remedy(context) for remedy in remedies)
    except (OSError, ConfigError, psycopg.Error) as error:
        did = f"could not: {one_line(str(error))}"
    return [replace(finding, fixed=did) for finding in run_check(check, context)]


def run_check(check: Check, context: CheckContext) -> list[Finding]:
    name = check.__name__.removeprefix("check_").replace("_", " ")
    try:
        found = check(context)
    except psycopg.errors.InsufficientPrivilege as error:
        what = f"this user may not look: {error.diag.message_primary}"
        return [warn(name, what, "look as the worker's user; rights are listed in sql/roles.sql")]
    except psycopg.Error as error:
        reason = one_line(error.diag.message_primary or str(error))
        return [bad(name, f"could not be checked: {reason}", "see the database's log")]
    return found if isinstance(found, list) else [found]


def usable_configuration(environment: Mapping[str, str]) -> tuple[Config | None, list[str]]:
    """Returns every problem too. Wrong settings are left at their defaults, so that the rest can still be checked."""
    try:
        return read_config(environment), []
    except ConfigError as error:
        problems = error.problems
    wrong = {problem.split()[0].rstrip(":") for problem in problems}
    try:
        return read_config({name: value for name, value in environment.items() if name not in wrong}), problems
    except ConfigError:
        return None, problems
