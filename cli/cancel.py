"""The command `convertq cancel`: unfinished jobs end at once, by id or in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never
from uuid import UUID

import click
from convertq.cli.bulk import change_in_bulk, print_preview
from convertq.cli.completion import complete_mapping
from convertq.cli.context import ACTIVE_JOB_ID, NearChoice, complain, json_option, open_database, print_json, the_store
from convertq.cli.exit_code import ExitCode
from convertq.queue.cancel import CancelledJob, Cancelling, CancelVerdict, find_active_jobs
from convertq.queue.database.database import Database
from convertq.queue.jobs import get_statuses
from convertq.queue.quantities import counted
from convertq.queue.queue_events import operator_at_terminal
from convertq.queue.status import ACTIVE, JobStatus

CODES = {
    CancelVerdict.CANCELLED: ExitCode.DONE,
    CancelVerdict.CANCELLED_BEFORE: ExitCode.DONE,
    CancelVerdict.NO_SUCH_JOB: ExitCode.NO_SUCH_JOB,
    CancelVerdict.ENDED: ExitCode.NOT_IN_STATE,
}


@click.command(
    epilog="""\b
Example:
  convertq cancel 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11
  convertq cancel --owner cli --status queued --dry-run
  convertq cancel --mapping pt_simon_invoice_v1 --cascade
"""
)
@click.argument("ids", metavar="[ID...]", nargs=-1, type=ACTIVE_JOB_ID)
@click.option("--owner", help="Unfinished jobs of this owner.")
@click.option("--mapping", shell_complete=complete_mapping, help="Unfinished jobs with this mapping.")
@click.option(
    "--status", type=NearChoice([status.value for status in ACTIVE]), help="Unfinished jobs in this status."
)  # fmt: skip
@click.option("--cascade", is_flag=True, help="Also the jobs that wait for a cancelled one, and those behind them.")
@click.option("--dry-run", is_flag=True, help="Print how many jobs, and the first of them; cancel nothing.")
@json_option
def cancel(ids: Sequence[UUID], cascade: bool, dry_run: bool, as_json: bool, **filters: str | None) -> ExitCode:
    """Cancel unfinished jobs, by id or in bulk; a running one is ended at once.

    In bulk, each batch of 500 jobs is committed by itself: Ctrl-C keeps what was cancelled until then.
    """
    in_bulk = any(value is not None for value in filters.values())
    if bool(ids) == in_bulk:
        raise click.UsageError("name job ids, or choose in bulk with --owner, --mapping or --status")
    with open_database() as database:
        cancelling = Cancelling(database, the_store(), operator_at_terminal(), cascade=cascade)
        if dry_run:
            return preview(database, cancelling, ids, filters, as_json)
        if in_bulk:
            return cancel_in_bulk(cancelling, find_active_jobs(database, **filters), as_json)
        return max(print_verdict(cancelling.cancel(job_id), as_json) for job_id in dict.fromkeys(ids))


def preview(
    database: Database, cancelling: Cancelling, ids: Sequence[UUID], filters: dict[str, Any], as_json: bool
) -> ExitCode:
    if not ids:
        print_preview(
            database, cancelling.preview(find_active_jobs(database, **filters)), "would be cancelled", as_json
        )
        return ExitCode.DONE
    rows = get_statuses(database, ids)
    verdicts = {job_id: verdict_on(job_id, rows.get(job_id)) for job_id in dict.fromkeys(ids)}
    active = [job_id for job_id, each in verdicts.items() if each.verdict is CancelVerdict.CANCELLED]
    print_preview(database, cancelling.preview(active), "would be cancelled", as_json)
    for each in verdicts.values():
        if reason := in_words(each):
            complain(f"{each.job_id}: {reason}")
    return max(CODES[each.verdict] for each in verdicts.values())


def verdict_on(job_id: UUID, row: dict[str, Any] | None) -> CancelledJob:
    """What a cancel of this job would be answered with."""
    if row is None:
        return CancelledJob(job_id, CancelVerdict.NO_SUCH_JOB)
    status = JobStatus(row["status"])
    if status.is_active:
        return CancelledJob(job_id, CancelVerdict.CANCELLED, status)
    before = status is JobStatus.CANCELLED
    return CancelledJob(job_id, CancelVerdict.CANCELLED_BEFORE if before else CancelVerdict.ENDED, status)


def print_verdict(each: CancelledJob, as_json: bool) -> ExitCode:
    reason = in_words(each)
    if as_json:
        is_cancelled = CODES[each.verdict] is ExitCode.DONE
        print_json({"id": each.job_id, "cancelled": is_cancelled, "cascade": each.cascade, "reason": reason})
    elif CODES[each.verdict] is ExitCode.DONE:
        others = f", with {counted(each.cascade, 'job')} that waited for it" if each.cascade else ""
        click.echo(f"{each.job_id} {'was cancelled before' if reason else 'cancelled'}{others}")
    else:
        complain(f"{each.job_id}: {reason}")
    return CODES[each.verdict]


def in_words(each: CancelledJob) -> str | None:
    match each.verdict:
        case CancelVerdict.CANCELLED:
            return None
        case CancelVerdict.CANCELLED_BEFORE:
            return "it was cancelled before"
        case CancelVerdict.ENDED:
            return f"it is {each.status}; only unfinished jobs are cancelled"
        case CancelVerdict.NO_SUCH_JOB:
            return "no such job"
        case _:
            assert_never(each.verdict)


def cancel_in_bulk(cancelling: Cancelling, ids: Sequence[UUID], as_json: bool) -> ExitCode:
    progress = change_in_bulk(lambda report: cancelling.cancel_all(ids, report), len(ids), "cancelled")
    if as_json:
        print_json({"cancelled": progress.done, "skipped": progress.skipped})
    else:
        why = " (no longer unfinished)" if progress.skipped else ""
        click.echo(f"{progress.done:,} cancelled, {progress.skipped:,} skipped{why}")
    return ExitCode.DONE
