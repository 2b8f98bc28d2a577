"""The doctor: every check in its order, each as far as those before it allow, and the remedies that it applies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import psycopg
from convertq.worker.checks import host, plans, queue, server, sessions
from convertq.worker.checks.finding import Finding, Look, State, bad, ok, warn
from convertq.worker.config import SETTINGS, Config, ConfigError, read_config
from convertq.worker.db import OWN_LIMIT_IS_REACHED, Database, connect, is_full
from convertq.worker.errors import one_line
from convertq.worker.files import Files

Check = Callable[[Look], Finding | list[Finding]]

OF_THE_HOST: tuple[Check, ...] = (
    host.check_heartbeat, host.check_directories, host.check_disk, host.check_descriptors, host.check_gateway,
)  # fmt: skip
OF_THE_SERVER: tuple[Check, ...] = (
    server.check_database, server.check_version, server.check_clock, server.check_pooler, server.check_connections,
    server.check_autovacuum, sessions.check_idle_sessions,
)  # fmt: skip
OF_THE_TABLES: tuple[Check, ...] = (
    sessions.check_vacuum, plans.check_plans, queue.check_leases, queue.check_servers, queue.check_breaker,
    queue.check_queue, queue.check_sources, queue.check_results,
)  # fmt: skip


def examine(environment: Mapping[str, str], *, fix: bool, application_name: str) -> Iterator[Finding]:
    """Each finding as soon as it is made. What cannot be looked at is left out; the finding before it says why."""
    config, problems = usable_configuration(environment)
    yield from [bad("configuration", problem, "see convertq config") for problem in problems]
    if config is None:
        return
    if not problems:
        given = sum(bool(environment.get(setting.variable)) for setting in SETTINGS)
        yield ok("configuration", f"{given} of {len(SETTINGS)} settings are given, the rest by default")
    look = Look(config, Files(config.uploads_dir, config.results_dir))
    yield from carry_out(OF_THE_HOST, look, fix=fix)
    try:
        look.connection = Database(connect(config.database, application_name), config.database.schema)
    except psycopg.Error as error:
        yield bad("database", f"{config.database.shown}: {one_line(str(error))}", way_in(error))
        return
    try:
        yield from examine_database(look, fix=fix)
    finally:
        look.connection.close()


def way_in(error: psycopg.Error) -> str:
    if not is_full(error):
        return "check DATABASE_URL, and that PostgreSQL runs"
    has_own_limit = any(words in str(error) for words in OWN_LIMIT_IS_REACHED)
    return server.make_room("that limit" if has_own_limit else "max_connections")


def examine_database(look: Look, *, fix: bool) -> Iterator[Finding]:
    ask(look)
    yield from carry_out(OF_THE_SERVER, look, fix=fix)
    [schema] = carry_out((server.check_schema,), look, fix=fix)
    yield schema
    if schema.state is State.OK:
        yield from carry_out(OF_THE_TABLES, look, fix=fix)


def ask(look: Look) -> None:
    """Twice: the first answer has the planning in it."""
    for _ in range(2):
        began, asked_at = time.monotonic(), look.clock()
        look.server = look.database.run("inspect_server")[0]
        look.latency = time.monotonic() - began
        look.asked_at = asked_at + look.latency / 2


def carry_out(checks: tuple[Check, ...], look: Look, *, fix: bool) -> Iterator[Finding]:
    for check in checks:
        findings = attempt(check, look)
        if fix and (remedies := {each.fix for each in findings if each.fix}):
            findings = mend(check, remedies, look)
        yield from findings


def mend(check: Check, remedies: set[Callable[[Look], str]], look: Look) -> list[Finding]:
    """Looks again afterwards: what is still wrong is said."""
    try:
        did = "; ".join(remedy(look) for remedy in remedies)
    except (OSError, psycopg.Error) as error:
        did = f"could not: {one_line(str(error))}"
    return [replace(finding, fixed=did) for finding in attempt(check, look)]


def attempt(check: Check, look: Look) -> list[Finding]:
    name = check.__name__.removeprefix("check_").replace("_", " ")
    try:
        found = check(look)
    except psycopg.errors.InsufficientPrivilege as error:
        what = f"this user may not look: {error.diag.message_primary}"
        return [warn(name, what, "look as the worker's user; rights are listed in sql/roles.sql")]
    except psycopg.Error as error:
        reason = one_line(error.diag.message_primary or str(error))
        return [bad(name, f"could not be checked: {reason}", "see the database's log")]
    return found if isinstance(found, list) else [found]


def usable_configuration(environment: Mapping[str, str]) -> tuple[Config | None, list[str]]:
    """With every problem; wrong settings are left at their defaults, so that the rest can be looked at all the same."""
    try:
        return read_config(environment), []
    except ConfigError as error:
        problems = error.problems
    wrong = {problem.split()[0].rstrip(":") for problem in problems}
    try:
        return read_config({name: value for name, value in environment.items() if name not in wrong}), problems
    except ConfigError:
        return None, problems
