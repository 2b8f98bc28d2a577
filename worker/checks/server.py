"""Checks of the database server: that it answers, fits, keeps time, and has room for the workers."""

from __future__ import annotations

from convertq.worker.checks.finding import Finding, Look, bad, ok, warn
from convertq.worker.migrations import migration_states

OLDEST_VERSION = 150000
SPARE = 2  # connections beside the workers': the supervisor's, and one for a command


def check_database(look: Look) -> Finding:
    said = f"{look.config.database.shown} answers in {look.latency * 1000:.1f} ms"
    if look.server["is_standby"]:
        return bad("database", f"{said}, but it is a standby", "name the primary in DATABASE_URL")
    if look.latency > look.limits.latency:
        return warn("database", said, "each job takes several answers: bring worker and database closer together")
    return ok("database", said)


def check_version(look: Look) -> Finding:
    said = f"PostgreSQL {look.server['version']}"
    if look.server["version_number"] < OLDEST_VERSION:
        return bad("version", said, "upgrade the server to PostgreSQL 15 or newer")
    return ok("version", said)


def check_schema(look: Look) -> Finding:
    schema = look.database.schema
    states = migration_states(look.database)
    by_state = {
        wanted: [each for each in states if each.state == wanted] for wanted in ("edited", "unknown", "pending")
    }
    if edited := by_state["edited"]:
        what = f"migration {edited[0].version} ({edited[0].name}) is not the one that was applied"
        return bad("schema", what, "restore its file: install the release again")
    if unknown := by_state["unknown"]:
        what = f"{schema} is at version {unknown[-1].version}, newer than this convertq"
        return bad("schema", what, "upgrade convertq on this host")
    if pending := by_state["pending"]:
        found = pending[0].version - 1
        what = f"{schema} has no convertq tables" if found == 0 else f"{schema} is at version {found}"
        return bad("schema", f"{what}; version {states[-1].version} is needed", "convertq migrate")
    return ok("schema", f"{schema} is at version {states[-1].version}")


def check_clock(look: Look) -> Finding:
    ahead = look.asked_at - look.server["now"].timestamp()
    if abs(ahead) > look.limits.clock_difference:
        which = "ahead of" if ahead > 0 else "behind"
        said = f"this host is {abs(ahead):.0f} s {which} the database"
        return warn("clock", said, "run NTP on both; leases are safe, but log times and the ages of files are wrong")
    return ok("clock", f"{abs(ahead) * 1000:.0f} ms from the database's")


def check_pooler(look: Look) -> Finding:
    if look.database.connection.is_pooled:
        what = "session settings are refused: no statement limit, no wake-ups, nothing prepared"
        return warn("pooler", what, "connect the workers to PostgreSQL itself, or to a pool in session mode")
    return ok("pooler", "session settings are in force")


def make_room(limit: str) -> str:
    return f"end what is not needed, raise {limit}, or lower WORKER_CONCURRENCY"


def check_connections(look: Look) -> Finding:
    server, needed = look.server, look.config.worker_concurrency + SPARE
    usable = server["max_connections"] - server["reserved_connections"]
    free = max(0, usable - server["used_connections"])  # a superuser may use those that are reserved
    said = f"{free} of {usable} connections are free, convertq has {server['convertq_connections']}"
    remedy = make_room("max_connections")
    if free < needed and server["most_connections"]:
        said = f"{said}, {server['most_connections']}"
    if free < SPARE:
        return bad("connections", said, remedy)
    if free < needed:
        return warn("connections", f"{said}; a restart here needs up to {needed}", remedy)
    return ok("connections", said)


def check_autovacuum(look: Look) -> Finding:
    if not look.server["autovacuum"]:
        return bad("autovacuum", "it is off: claims become slower with every job", "set autovacuum = on")
    return ok("autovacuum", "on")
