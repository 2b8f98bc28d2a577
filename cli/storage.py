"""The commands `convertq storage …`: where the files of jobs are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from convertq.cli.context import complain, configuration, json_option, open_database, print_json, the_store
from convertq.cli.exit_code import ExitCode
from convertq.queue.quantities import counted, size
from convertq.queue.storage_copy import FileCopy, StorageCopy, What
from convertq.queue.storage_url import StorageUrl, parse_storage_url

if TYPE_CHECKING:
    from convertq.queue.store.protocol import Store

DIRECTORIES = "directories"


class StorageUrlType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, which is not required
    """A bucket, or the word for the two directories."""

    name = "url"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == DIRECTORIES or isinstance(value, StorageUrl):
            return value
        try:
            return parse_storage_url(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}, or the word {DIRECTORIES}", parameter, context)


@click.group()
def storage() -> None:
    """Move the files of jobs between directories and object storage."""


@storage.command(
    epilog="""\b
Example:
  STORAGE_URL=s3://documents/convertq convertq storage copy --to s3://documents/convertq
  convertq storage copy --to directories --verify
"""
)
@click.option("--to", "target", type=StorageUrlType(), required=True, help="s3://BUCKET/PREFIX, or `directories`.")
@click.option("--verify", is_flag=True, help="Read each copy again and compare its checksum.")
@json_option
def copy(target: StorageUrl | str, verify: bool, as_json: bool) -> ExitCode:
    """Copy every source and result, while workers run; may be interrupted and repeated."""
    url = None if isinstance(target, str) else target
    refuse_unread_target(url)
    the_target = open_target(url)
    counts: Counter[tuple[str, What]] = Counter()
    total = 0
    with open_database() as database:
        copying = StorageCopy(
            database, the_store(), the_target, is_at_target=lambda location: is_at(url, location), verify=verify
        )
        for copies in with_progress(copying):
            for each in copies:
                counts[each.kind, each.what] += 1
                total += each.bytes
                if each.error:
                    complain(f"{each.job_id}: the {each.kind} was not copied: {each.error}")
    print_summary(counts, total, as_json)
    return ExitCode.FAILED if any(what is What.FAILED for _, what in counts) else ExitCode.DONE


def refuse_unread_target(url: StorageUrl | None) -> None:
    """A row names the copy as soon as it is stored: every process must be able to read it there."""
    config = configuration()
    if url not in (config.storage_url, config.storage_read_url):
        where = f"STORAGE_URL or STORAGE_READ_URL = {url}" if url else "STORAGE_URL or STORAGE_READ_URL empty"
        raise click.UsageError(f"nothing reads there yet: set {where} on every host first, and restart it")


def open_target(url: StorageUrl | None) -> Store:
    from convertq.queue.store import open_one_store

    store = open_one_store(url, configuration())
    store.make_ready()
    store.require()
    return store


def is_at(url: StorageUrl | None, location: str) -> bool:
    return location.startswith(str(url) if url else "/")


def with_progress(copying: StorageCopy) -> Iterable[list[FileCopy]]:
    """The files of each job; on a terminal with a bar."""
    if not sys.stderr.isatty():
        return copying.run()
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(copying.run(), "copying", copying.count_jobs(), console=console, transient=True)


def print_summary(counts: Counter[tuple[str, What]], total: int, as_json: bool) -> None:
    if as_json:
        found = {f"{kind}s": {what.value: counts[kind, what] for what in What} for kind in ("source", "result")}
        print_json({**found, "bytes": total})
        return
    copied = " and ".join(counted(counts[kind, What.COPIED], kind) for kind in ("source", "result"))
    rest = {what: sum(counts[kind, what] for kind in ("source", "result")) for what in What if what is not What.COPIED}
    click.echo(f"copied {copied} ({size(total)}); {', '.join(f'{number} {what}' for what, number in rest.items())}")
