"""Checks of the database server: that it answers, fits, keeps time, and has room for the workers."""

from __future__ import annotations

from convertq.queue.database.migrations import ENCODING, HOW_TO_GET_UTF8, encoding_of, migration_states, unsupported
from convertq.queue.doctor.finding import CheckContext, Finding, bad, ok, warn

OLDEST_VERSION = 150000
SPARE = 2  # connections beside the workers': the supervisor's, and one for a command


def check_database(context: CheckContext) -> Finding:
    summary = f"{context.config.database.shown} answers in {context.latency_seconds * 1000:.1f} ms"
    if context.server["is_standby"]:
        return bad("database", f"{summary}, but it is a standby", "name the primary in DATABASE_URL")
    if context.latency_seconds > context.limits.latency_seconds:
        return warn("database", summary, "each job takes several answers: bring worker and database closer together")
    return ok("database", summary)


def check_version(context: CheckContext) -> Finding:
    summary = f"PostgreSQL {context.server['version']}"
    if context.server["version_number"] < OLDEST_VERSION:
        return bad("version", summary, "upgrade the server to PostgreSQL 15 or newer")
    return ok("version", summary)


def check_encoding(context: CheckContext) -> Finding:
    encoding = encoding_of(context.database)
    if encoding != ENCODING:
        return bad("encoding", f"{encoding}; {ENCODING} is needed", HOW_TO_GET_UTF8)
    return ok("encoding", encoding)


def check_schema(context: CheckContext) -> Finding:
    schema = context.database.schema
    states = migration_states(context.database)
    by_state = {
        wanted: [each for each in states if each.state == wanted] for wanted in ("edited", "unknown", "pending")
    }
    if edited := by_state["edited"]:
        what = f"migration {edited[0].version} ({edited[0].name}) is not the one that was applied"
        return bad("schema", what, "restore its file: install the release again")
    if unknown := by_state["unknown"]:
        what = f"{schema} is at version {unknown[-1].version}, newer than this convertq"
        if unsupported(states):
            return bad("schema", what, "upgrade convertq on this host")
        return warn("schema", f"{what}, which it still supports", "upgrade convertq on this host when it is convenient")
    if pending := by_state["pending"]:
        found = pending[0].version - 1
        what = f"{schema} has no convertq tables" if found == 0 else f"{schema} is at version {found}"
        return bad("schema", f"{what}; version {states[-1].version} is needed", "convertq migrate")
    return ok("schema", f"{schema} is at version {states[-1].version}")


def check_clock(context: CheckContext) -> Finding:
    ahead = context.measured_at - context.server["now"].timestamp()
    if abs(ahead) > context.limits.clock_difference_seconds:
        which = "ahead of" if ahead > 0 else "behind"
        summary = f"this host is {abs(ahead):.0f} s {which} the database"
        return warn("clock", summary, "run NTP on both; leases are safe, but log times and the ages of files are wrong")
    return ok("clock", f"{abs(ahead) * 1000:.0f} ms from the database's")


def check_pooler(context: CheckContext) -> Finding:
    if not context.database.connection.is_pooled:
        return ok("pooler", "session settings are in force")
    if context.config.database_direct_url is None:
        what = "a transaction pooler: workers are not notified of new jobs, and poll"
        return warn("pooler", what, "set DATABASE_DIRECT_URL to PostgreSQL itself, for the supervisor")
    return ok("pooler", "a transaction pooler; the supervisor listens at DATABASE_DIRECT_URL")


def make_room(limit: str) -> str:
    return f"end what is not needed, raise {limit}, or lower WORKER_CONCURRENCY"


def check_connections(context: CheckContext) -> Finding:
    server, needed = context.server, context.config.worker_concurrency.most + SPARE
    usable = server["max_connections"] - server["reserved_connections"]
    free = max(0, usable - server["used_connections"])  # a superuser may use those that are reserved
    summary = f"{free} of {usable} connections are free, convertq has {server['convertq_connections']}"
    remedy = make_room("max_connections")
    if free < needed and server["most_connections"]:
        summary = f"{summary}, {server['most_connections']}"
    if free < SPARE:
        return bad("connections", summary, remedy)
    if free < needed:
        return warn("connections", f"{summary}; a restart here needs up to {needed}", remedy)
    return ok("connections", summary)


def check_autovacuum(context: CheckContext) -> Finding:
    if not context.server["autovacuum"]:
        return bad("autovacuum", "it is off: claims become slower with every job", "set autovacuum = on")
    return ok("autovacuum", "on")
