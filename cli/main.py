"""The command `convertq`: runs the command that was typed, and turns every error into a line and an exit code."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click
from convertq.cli.exit_code import ExitCode, Stop, explain
from convertq.cli.table import hang, terminal_width
from convertq.cli.terminal import adapted, has_colours

#: Where each command is, and its line in the help. A command is imported only when it is used.
COMMANDS = {
    "up": ("convertq.cli.up:up", "Run everything on this machine, with nothing to set up."),
    "convert": ("convertq.cli.convert:convert", "Convert PDF files to XML files, with a temporary queue."),
    "worker": ("convertq.cli.worker:worker", "Run the worker pool (worker run)."),
    "web": ("convertq.cli.web:web", "Run the HTTP API and the pages (web run)."),
    "submit": ("convertq.cli.submit:submit", "Submit PDF files and print their job ids."),
    "wait": ("convertq.cli.wait:wait", "Wait until jobs have ended."),
    "result": ("convertq.cli.result:result", "Write a job's XML to stdout or to a file."),
    "list": ("convertq.cli.list:list_jobs", "List jobs, newest first."),
    "show": ("convertq.cli.show:show", "Show everything about one job."),
    "retry": ("convertq.cli.retry:retry", "Queue failed or cancelled jobs again, by id or in bulk."),
    "cancel": ("convertq.cli.cancel:cancel", "Cancel unfinished jobs, by id or in bulk."),
    "reclaim": ("convertq.cli.reclaim:reclaim", "Reclaim the jobs of lost workers."),
    "stats": ("convertq.cli.stats:stats", "Show depth, throughput, errors and gateway times."),
    "servers": ("convertq.cli.servers:servers", "List registered supervisors and their running jobs."),
    "top": ("convertq.cli.top.command:top", "Watch the queue live in the terminal."),
    "breaker": ("convertq.cli.breaker:breaker", "Show, open or close the circuit breaker."),
    "pause": ("convertq.cli.pause:pause", "Stop claiming the jobs of a gateway or of an owner."),
    "resume": ("convertq.cli.pause:resume", "Claim paused jobs again."),
    "log": ("convertq.cli.log:log", "Show what happened to the queue, and who changed it."),
    "cleanup": ("convertq.cli.cleanup:cleanup", "Remove expired files, events and jobs."),
    "forget": ("convertq.cli.forget:forget", "Remove jobs at once, with all their rows and files."),
    "storage": ("convertq.cli.storage:storage", "Copy all files to another storage (storage copy)."),
    "doctor": ("convertq.cli.doctor:doctor", "Check the installation, with remedies."),
    "metrics": ("convertq.cli.metrics:metrics", "Print Prometheus metrics."),
    "config": ("convertq.cli.config:config", "Show the configuration in force."),
    "migrate": ("convertq.cli.migrate:migrate", "Create or update the database schema."),
    "completion": ("convertq.cli.completion:completion", "Print the completion script of a shell."),
    "gateway": ("convertq.cli.gateway:gateway", "Run the built-in reference gateway (gateway run)."),
    "demo": ("convertq.cli.demo:demo", "Convert sample invoices with an embedded PostgreSQL."),
}


class LazyGroup(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        command.short_help = COMMANDS[name][1]  # the shell's completion would cut the first sentence of the long help
        return command

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if words and words[0] not in COMMANDS and not words[0].startswith("-"):
            close = difflib.get_close_matches(words[0], COMMANDS, n=1)
            meant = f": did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"no such command {words[0]!r}{meant}", context)
        return super().resolve_command(context, words)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(context)])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Example:
  convertq migrate
  convertq worker run --concurrency 4
  convertq submit --wait invoice.pdf
""",
)
@click.version_option(package_name="convertq", message="convertq %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show a traceback with an error.")
def convertq() -> None:
    """Turn queued PDFs into XML through an HTTP gateway, with PostgreSQL as the only queue."""


def run(arguments: Sequence[str]) -> int:
    try:
        code = convertq.main(
            _without_debug(arguments), prog_name="convertq", standalone_mode=False, color=has_colours()
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.DONE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - every error ends here
        if _has_debug(arguments) and not isinstance(error, (click.ClickException, click.Abort, Stop)):
            traceback.print_exception(error)
        return _report(error)


def _report(error: BaseException) -> int:
    from convertq.queue.log.journal import error_line

    code, lines = explain(error)
    with contextlib.suppress(OSError):
        for line in lines:
            for piece in hang(error_line(line), 2, terminal_width(sys.stderr)):
                print(piece, file=sys.stderr)
    if isinstance(error, BrokenPipeError):  # or the interpreter would report its last flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _options(arguments: Sequence[str]) -> list[str]:
    return list(arguments[: arguments.index("--")] if "--" in arguments else arguments)


def _has_debug(arguments: Sequence[str]) -> bool:
    return "--debug" in _options(arguments)


def _without_debug(arguments: Sequence[str]) -> list[str]:
    """`--debug` may stand anywhere in the line."""
    options = _options(arguments)
    return [word for word in options if word != "--debug"] + list(arguments[len(options) :])


def main() -> NoReturn:
    sys.stdout, sys.stderr = adapted(sys.stdout), adapted(sys.stderr)  # type: ignore[arg-type]
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
