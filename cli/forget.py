"""The command `convertq forget`: removes jobs at once, with everything that is stored of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import click
from convertq.cli.cleanup import refuse_missing_store
from convertq.cli.context import JOB_ID, complain, json_option, open_database, print_json, the_store
from convertq.cli.exit_code import ExitCode
from convertq.cli.formatting import shown
from convertq.queue.forget import Forgetting, Forgotten, Verdict
from convertq.queue.jobs import find_owner_jobs
from convertq.queue.quantities import counted
from convertq.queue.queue_events import operator_at_terminal

CODES = {
    Verdict.FORGOTTEN: ExitCode.DONE,
    Verdict.FAILED: ExitCode.FAILED,
    Verdict.UNKNOWN: ExitCode.NO_SUCH_JOB,
    Verdict.WAITED_FOR: ExitCode.NOT_IN_STATE,
}


@click.command(
    epilog="""\b
Example:
  convertq forget 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11
  convertq forget --owner 5f2c7a80-6a3f-4bb5-8d0e-9a1c4d7e2b33 --dry-run
"""
)
@click.argument("ids", metavar="[ID...]", nargs=-1, type=JOB_ID)
@click.option("--owner", help="Every job of this owner.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@json_option
def forget(ids: Sequence[UUID], owner: str | None, dry_run: bool, as_json: bool) -> ExitCode:
    """Remove jobs at once, also running ones: rows, events and files.

    A job that an unfinished job depends on is refused, unless that job is removed in the same call.
    """
    if bool(ids) == (owner is not None):
        raise click.UsageError("name job ids, or an owner with --owner")
    refuse_missing_store()
    with open_database() as database:
        wanted = ids or find_owner_jobs(database, owner or "")
        verdicts: Counter[Verdict] = Counter()
        for each in Forgetting(database, the_store(), operator_at_terminal(), dry_run=dry_run).run(wanted):
            verdicts[each.verdict] += 1
            print_verdict(each, dry_run=dry_run, in_bulk=owner is not None, as_json=as_json)
    if owner is not None:
        print_summary(verdicts, dry_run=dry_run, as_json=as_json)
    return max((CODES[verdict] for verdict in verdicts), default=ExitCode.DONE)


def print_verdict(each: Forgotten, *, dry_run: bool, in_bulk: bool, as_json: bool) -> None:
    if as_json and not in_bulk:
        is_gone = each.verdict is Verdict.FORGOTTEN
        print_json({"id": each.job_id, "forgotten": is_gone and not dry_run, "reason": each.reason})
    elif each.reason is not None:
        complain(f"{each.job_id}: {shown(each.reason)}")
    elif not in_bulk:
        click.echo(f"{each.job_id} {'would be forgotten' if dry_run else 'forgotten'}")


def print_summary(verdicts: Counter[Verdict], *, dry_run: bool, as_json: bool) -> None:
    gone, kept = verdicts[Verdict.FORGOTTEN], verdicts[Verdict.WAITED_FOR] + verdicts[Verdict.FAILED]
    if as_json:
        print_json({"dry_run": dry_run, "forgotten": gone, "kept": kept})
        return
    rest = f", {kept} kept" if kept else ""
    click.echo(f"{'would forget' if dry_run else 'forgot'} {counted(gone, 'job')}{rest}")
