"""The command `convertq completion`: what a shell reads to complete commands, options, job ids and statuses."""

from __future__ import annotations

import threading
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class
from convertq.cli.exit_code import ExitCode

VARIABLE = "_CONVERTQ_COMPLETE"  # where click looks for the shell's question
NEWEST = 50  # jobs
#: what click's scripts do not do by themselves. In fish an explanation must not end at its first comma, and the newest
#: jobs come first. In zsh a script from fpath would answer the first Tab of a shell, and not the second.
BETTER = {
    "fish": (
        ('string split "," $completion', 'string split --max 1 "," $completion'),
        ("complete --no-files", "complete --no-files --keep-order"),
    ),
    "zsh": (
        ('    _convertq_completion "$@"', '    compdef _convertq_completion convertq\n    _convertq_completion "$@"'),
    ),
}
PATIENCE = 1.0  # s; whoever presses Tab would rather have nothing than wait


@click.command(
    epilog="""\b
Example:
  convertq completion bash > ~/.local/share/bash-completion/completions/convertq
  convertq completion zsh > "${fpath[1]}/_convertq"
  convertq completion fish > ~/.config/fish/completions/convertq.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> ExitCode:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "convertq", VARIABLE).source()
    for of_click, ours in BETTER.get(shell, ()):
        script = script.replace(of_click, ours)
    click.echo(script)
    return ExitCode.DONE


def complete_job_id(incomplete: str, status: str | None = None) -> list[CompletionItem]:
    """The newest jobs whose ids begin so; none when the database does not answer at once."""
    found: list[CompletionItem] = []
    # a thread that is left behind at the end: looking up a host's name cannot be cut short in any other way
    asking = threading.Thread(target=lambda: found.extend(_newest_jobs(status)), daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return [item for item in list(found) if item.value.startswith(incomplete.lower())]


def _newest_jobs(status: str | None) -> list[CompletionItem]:
    try:
        from convertq.cli.context import open_database
        from convertq.worker.job_list import find_jobs

        with open_database() as database:
            rows = find_jobs(database, status=status, owner=None, code=None, limit=NEWEST)
    except Exception:  # noqa: BLE001 - whatever it is, a word in the middle of a command line is worse
        return []
    return [CompletionItem(str(row["id"]), help=row["status"]) for row in rows]


def complete_code(context: Any, parameter: Any, incomplete: str) -> list[str]:
    """As they are written everywhere else: click would offer them in small letters."""
    from convertq.worker.errors import Code

    return [str(code) for code in Code if code.startswith(incomplete.upper())]


def complete_mapping(context: Any, parameter: Any, incomplete: str) -> list[str]:
    from convertq.cli.context import configuration
    from convertq.worker.config import ConfigError

    try:
        return [name for name in configuration().mappings_allowed if name.startswith(incomplete)]
    except ConfigError:
        return []
