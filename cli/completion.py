"""The command `convertq completion`: the script with which a shell completes commands, options and job ids."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class
from convertq.cli.exit_code import ExitCode

VARIABLE = "_CONVERTQ_COMPLETE"  # in which click finds what the shell wants to complete
MAX_JOBS = 50
#: Corrections of click's scripts. In fish, a description must not end at its first comma, and the newest jobs come
#: first. In zsh, a script from fpath would complete only at the first Tab of a shell.
CORRECTIONS = {
    "fish": (
        ('string split "," $completion', 'string split --max 1 "," $completion'),
        ("complete --no-files", "complete --no-files --keep-order"),
    ),
    "zsh": (
        ('    _convertq_completion "$@"', '    compdef _convertq_completion convertq\n    _convertq_completion "$@"'),
    ),
}
TIMEOUT_SECONDS = 1.0  # no completion is better than a shell that hangs after Tab


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
    for of_click, ours in CORRECTIONS.get(shell, ()):
        script = script.replace(of_click, ours)
    click.echo(script)
    return ExitCode.DONE


def complete_job_id(incomplete: str, statuses: Sequence[str] = ()) -> list[CompletionItem]:
    """The newest jobs whose ids begin like this; none when the database does not answer in time."""
    found: list[CompletionItem] = []
    # The thread is abandoned after the timeout: a host name's lookup cannot be interrupted.
    lookup = threading.Thread(target=lambda: found.extend(_newest_jobs(statuses)), daemon=True)
    lookup.start()
    lookup.join(TIMEOUT_SECONDS)
    return [item for item in list(found) if item.value.startswith(incomplete.lower())]


def _newest_jobs(statuses: Sequence[str]) -> list[CompletionItem]:
    try:
        from convertq.cli.context import open_database
        from convertq.queue.jobs import list_jobs

        with open_database() as database:
            listed = [list_jobs(database, status, None, None, MAX_JOBS) for status in statuses or (None,)]
    except Exception:  # noqa: BLE001 - any message would appear in the middle of a command line
        return []
    rows = sorted((row for rows in listed for row in rows), key=lambda row: row["created_at"], reverse=True)
    return [CompletionItem(str(row["id"]), help=row["status"]) for row in rows[:MAX_JOBS]]


def complete_code(context: Any, parameter: Any, incomplete: str) -> list[str]:
    """Offers the codes in capitals; click itself would offer them in lower case."""
    from convertq.queue.errors import Code

    return [str(code) for code in Code if code.startswith(incomplete.upper())]


def complete_mapping(context: Any, parameter: Any, incomplete: str) -> list[str]:
    from convertq.cli.context import configuration
    from convertq.queue.config import ConfigError

    try:
        return [name for name in configuration().mappings_allowed if name.startswith(incomplete)]
    except ConfigError:
        return []
