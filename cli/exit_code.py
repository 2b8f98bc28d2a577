"""The exit codes, and how an error becomes one line on stderr and one of them."""

from __future__ import annotations

import os
from enum import IntEnum

import click
from convertq.cli.formatting import shown


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_SUCH_JOB = 3
    NOT_IN_STATE = 4
    UNREACHABLE = 69  # EX_UNAVAILABLE
    BAD_CONFIG = 78  # EX_CONFIG
    INTERRUPTED = 130  # 128 + SIGINT, as shells have it


#: for docs/commands.md and the man page (`make docs`)
MEANINGS = {
    ExitCode.DONE: "Done.",
    ExitCode.FAILED: "Failed: a refused or unreadable file, a failed or cancelled job, a timeout, or a bad finding of "
    "`doctor`.",
    ExitCode.USAGE: "Wrong usage, such as an id that is not a UUID or a mapping that is not allowed.",
    ExitCode.NO_SUCH_JOB: "No such job.",
    ExitCode.NOT_IN_STATE: "The job's state does not allow it: `NOT_READY`, `EXPIRED`, a cancel of a job that has "
    "ended, or a retry without its source or before the jobs that it depends on are complete.",
    ExitCode.UNREACHABLE: "The database, the storage or the gateway is unreachable, or the database has no free "
    "connection.",
    ExitCode.BAD_CONFIG: "Wrong configuration.",
    ExitCode.INTERRUPTED: "Interrupted.",
}


class Stop(Exception):
    """Ends a command with this code and this line."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def explain(error: BaseException) -> tuple[ExitCode, list[str]]:
    """The exit code, and the lines for stderr; none where the reason is obvious, as after Ctrl-C."""
    if isinstance(error, BrokenPipeError):
        return ExitCode.FAILED, []
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return ExitCode.INTERRUPTED, []
    if isinstance(error, Stop):
        return error.code, [f"convertq: {error}"]
    if isinstance(error, click.UsageError):
        return ExitCode.USAGE, _usage(error)
    if isinstance(error, click.ClickException):
        return ExitCode(error.exit_code), [f"convertq: {error.format_message()}"]
    code, lines = _ours(error)
    return code, [f"convertq: {line}" for line in lines]


def _usage(error: click.UsageError) -> list[str]:
    message = error.format_message()
    if "\n" in message:  # the whole help, for a group without its command
        return message.splitlines()
    hint = f" (try '{error.ctx.command_path} --help')" if error.ctx else ""
    return [f"convertq: {message}{hint}"]


def _ours(error: BaseException) -> tuple[ExitCode, list[str]]:
    """Imported here: `convertq --help` needs neither psycopg nor the worker."""
    import psycopg
    from convertq.queue.config import ConfigError
    from convertq.queue.database.errors import READ_ONLY, SchemaError, is_full, server_is_gone
    from convertq.queue.database.migrations import MigrationError
    from convertq.queue.errors import StorageError, one_line

    match error:
        case ConfigError():
            return ExitCode.BAD_CONFIG, error.problems
        case SchemaError() | MigrationError():
            return ExitCode.FAILED, [" ".join(str(error).split())]
        case psycopg.OperationalError() if is_full(error):
            full = f"the database at {_database()} has no connection left: {one_line(str(error))}"
            return ExitCode.UNREACHABLE, [full]
        case psycopg.Error() if error.sqlstate == READ_ONLY:
            standby = f"the database at {_database()} is read-only: name the primary in DATABASE_URL"
            return ExitCode.UNREACHABLE, [standby]
        case psycopg.OperationalError() if server_is_gone(error):
            return ExitCode.UNREACHABLE, [f"database unreachable at {_database()}: {one_line(str(error))}"]
        case psycopg.Error():
            message = error.diag.message_primary or str(error)
            return ExitCode.FAILED, [f"the database refused: {one_line(message)}"]
        case UnicodeEncodeError():
            return ExitCode.USAGE, ["an argument is not valid UTF-8"]
        case StorageError():
            return ExitCode.UNREACHABLE, [error.strerror or str(error)]
        case OSError():
            where = f"{shown(os.fsdecode(error.filename))}: " if error.filename else ""
            return ExitCode.FAILED, [f"{where}{(error.strerror or str(error)).lower()}"]
    what = one_line(f"{type(error).__name__}: {error}")
    return ExitCode.FAILED, [f"unexpected error: {what} (run with --debug)"]


def _database() -> str:
    from convertq.queue.database.url import parse_database_url

    return parse_database_url(os.environ["DATABASE_URL"]).shown
