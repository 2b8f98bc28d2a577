"""What `convertq up` and `convertq convert` share: what has to be installed, and how their stack is prepared."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Iterable, Mapping

from convertq.cli import gateway, web
from convertq.cli.context import APPLICATION_NAME, configuration
from convertq.cli.exit_code import ExitCode, Stop
from convertq.embedded.binaries import BinariesMissing, find_prefix
from convertq.embedded.local_stack import LocalStack


def names_gateway(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("GATEWAY_URL") or environment.get("GATEWAYS_FILE"))


def refuse_without_extra(command: str, *, needs_web: bool, needs_database: bool, needs_gateway: bool) -> None:
    """Exit code 78 before anything is started."""
    modules = dict(web.NEEDED) if needs_web else {}
    if needs_gateway:
        modules |= {name: name for name in gateway.NEEDED}
    missing = [package for module, package in modules.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise Stop(ExitCode.BAD_CONFIG, f"{command} needs {', '.join(missing)}: pip install 'convertq[up]'")
    if needs_database:
        try:
            find_prefix()
        except BinariesMissing as error:
            raise Stop(ExitCode.BAD_CONFIG, str(error)) from None


def start_gateway(stack: LocalStack) -> None:
    from convertq.gateway.mapping import mapping_names

    if not names_gateway(stack.environment):
        stack.start_gateway(mapping_names())


def prepare_database(stack: LocalStack, *, is_embedded: bool) -> None:
    """Creates or upgrades the schema. From here on this process has the settings of the stack.

    No server of an earlier run can be left where PostgreSQL was started just now, so their jobs are free at once.
    """
    from convertq.cli.migrate import apply, open_connection
    from convertq.queue.database.database import Database
    from convertq.queue.servers import mark_all_servers_dead

    os.environ.update(stack.environment)
    with open_connection() as connection:
        apply(connection, to=None, timeout=None)
    if is_embedded:
        database = Database.open(configuration().database, APPLICATION_NAME)
        mark_all_servers_dead(database)
        database.close()


def export_line(environment: Mapping[str, str], names: Iterable[str]) -> str:
    """For a second terminal: with it, every command finds the stack."""
    return "export " + " ".join(f"{name}={shlex.quote(environment[name])}" for name in names if name in environment)
