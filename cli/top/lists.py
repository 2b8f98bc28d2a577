"""The three lists of `convertq top`: servers, the workers that have a job, and the last errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from convertq.cli import servers
from convertq.cli.formatting import duration, shown
from convertq.cli.table import columns, table
from convertq.cli.top.snapshot import Row, Snapshot
from convertq.cli.top.view import View
from convertq.queue.explain import State
from convertq.queue.quantities import size
from convertq.queue.servers import ENDED, RUNNING
from rich.text import Text

HEADING_COLUMNS = 80  # where the output has no width
WIDE_COLUMNS = 120  # from which whole ids and file names fit
COLOURS = {**servers.COLOURS, State.FAILED: "red", State.RETRYING: "yellow"}
NO_ERRORS: dict[str, str] = {
    "all": "no job has failed or waits for a retry",
    State.FAILED: "no job has failed",
    State.RETRYING: "no job waits for a retry",
}


def lists(view: View, width: int | None, room: int | None) -> list[Text]:
    """They share `room` lines; without it, every row is shown."""
    snapshot = view.snapshot
    wanted = [len(snapshot.servers), len(snapshot.workers), len(snapshot.errors)]
    given = wanted if room is None else shares(wanted, room - 2 * len(wanted))
    return [
        *headed(_about_servers(snapshot, given[0]), _servers(snapshot, given[0], width), width),
        *headed(_about_workers(snapshot, given[1]), _workers(snapshot, given[1], width), width),
        *headed(f"last errors: {view.shows}", _errors(view, given[2], width), width),
    ]


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each list gets: one each in turn, the last list first, until nothing is left or wanted."""
    given = [0] * len(wanted)
    while room > 0 and given != list(wanted):
        for at in reversed(range(len(wanted))):
            if given[at] < wanted[at] and room > 0:
                given[at], room = given[at] + 1, room - 1
    return given


def headed(title: str, body: list[Text], width: int | None) -> list[Text]:
    beginning = f"── {title} "
    return [Text(beginning + "─" * ((width or HEADING_COLUMNS) - columns(beginning)), style="cyan"), *body]


def _rows(
    headings: Sequence[str], rows: Sequence[Sequence[str]], elastic: Collection[str], width: int | None
) -> list[Text]:
    first, *others = (Text(line) for line in table(headings, rows, elastic=elastic, width=width))
    first.stylize("dim")
    for line in others:
        for word, colour in COLOURS.items():
            line.highlight_regex(rf"(?<=  ){word}(?=  )", colour)
    return [first, *others]


def _not_shown(there: int, given: int) -> str:
    return f", {there - given} not shown" if given < there else ""


# -- servers --


def _about_servers(snapshot: Snapshot, given: int) -> str:
    at_work = sum(server["status"] in RUNNING for server in snapshot.servers)
    return f"servers: {at_work} at work{_not_shown(len(snapshot.servers), given)}"


def _servers(snapshot: Snapshot, given: int, width: int | None) -> list[Text]:
    if not snapshot.servers:
        return [Text("none has registered: start one with `convertq worker run`", style="yellow")]
    rows = [servers.cells(server) for server in snapshot.servers[:given]]
    return _rows(servers.HEADINGS, rows, ("SERVER", "LABEL"), width)


# -- workers --


def _about_workers(snapshot: Snapshot, given: int) -> str:
    busy = len(snapshot.workers)
    return f"workers: {busy} busy, {max(0, snapshot.slots - busy)} idle{_not_shown(busy, given)}"


def _workers(snapshot: Snapshot, given: int, width: int | None) -> list[Text]:
    """Where not all fit, those that have run longest are shown, in the order of their names."""
    busy = snapshot.workers
    if not busy:
        return [Text("no job is being converted", style="dim")]
    longest = sorted(range(len(busy)), key=lambda at: -(busy[at]["seconds"] or 0))[:given]
    rows = [_worker(busy[at], width) for at in sorted(longest)]
    return _rows(("WORKER", "JOB", "   AGE", "TRY", "   SIZE", "PROGRESS"), rows, ("WORKER",), width)


def _worker(job: Row, width: int | None) -> Sequence[str]:
    return (
        shown(job["worker"]),
        _id(job["job_id"], width),
        f"{duration(job['seconds'] or 0):>6}",
        f"{job['attempt']:>3}",
        f"{size(job['bytes']):>7}",
        _progress(job),
    )


def _progress(job: Row) -> str:
    if job["lease_seconds"] < 0:
        return "its lease has expired"
    if job["server_status"] in ENDED:
        return f"its server is {job['server_status']}"
    if not job["step"]:
        return "-"
    return f"{'█' * (job['percent'] // 10):─<10} {job['percent']:>3}% {job['step']}"


# -- errors --


def _errors(view: View, given: int, width: int | None) -> list[Text]:
    if not view.snapshot.errors:
        return [Text(NO_ERRORS[view.shows], style="dim")]
    position = view.position
    start = 0 if position is None else max(0, position - given + 1)
    names = ("  JOB", "STATE", "CODE", "   AGE", "TRY", "FILE", "MESSAGE")
    seen = [at for at, name in enumerate(names) if name != "FILE" or _is_wide(width)]
    cells = [_error(row, view, width) for row in view.snapshot.errors[start : start + given]]
    rows = [[row[at] for at in seen] for row in cells]
    lines = _rows([names[at] for at in seen], rows, ("FILE", "MESSAGE"), width)
    if position is not None and given:
        chosen = lines[position - start + 1].plain
        lines[position - start + 1] = Text(chosen + " " * ((width or 0) - columns(chosen)), style="reverse")
    return lines


def _error(row: Row, view: View, width: int | None) -> Sequence[str]:
    return (
        f"{'>' if row['id'] == view.selected else ' '} {_id(row['id'], width)}",
        row["state"],
        row["error_code"] or "-",
        f"{duration(view.snapshot.now - row['at']):>6}",
        f"{row['attempts']:>3}",
        shown(row["original_filename"] or "-"),
        shown(row["error_message"] or "-"),
    )


def _id(job_id: object, width: int | None) -> str:
    return str(job_id) if _is_wide(width) else str(job_id)[:8]


def _is_wide(width: int | None) -> bool:
    return width is None or width >= WIDE_COLUMNS
