"""The screen of `convertq top` as lines: the header, the lists and the footer, cut to the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convertq.cli.breaker import COLOURS, in_words, next_probe
from convertq.cli.formatting import duration, shown
from convertq.cli.pause import in_words as pause_in_words
from convertq.cli.table import columns, cut
from convertq.cli.top.graph import in_ascii, sparkline
from convertq.cli.top.lists import lists
from convertq.cli.top.snapshot import STATUSES, Row, Snapshot
from convertq.cli.top.view import View
from convertq.queue.status import JobStatus
from rich.text import Text

KEYS = "q quit   ↑↓ j k select   r retry   f filter   ? help"
HELP = "r: queue the selected failed job again   f: all, failed, retrying   ^L: redraw"
NAME_COLUMNS = len("unfinished ")
RARE = (JobStatus.UPLOADED, JobStatus.CANCELLED)
JOBS = {JobStatus.FAILED: "red", JobStatus.PROCESSING: "cyan"}


def page(view: View, width: int | None) -> list[Text]:
    """One frame for `--once`, with every row; without a width nothing is cut."""
    pace = Text(f"throughput: {view.snapshot.rate:.1f} a second")
    return [*_header(view, width), pace, *_last_hour(view, width), *lists(view, width, None)]


def screen(view: View, width: int, height: int) -> list[Text]:
    """Exactly `height` lines of at most `width` columns; the keys are in the last one."""
    header, footer = [*_header(view, width), *_graphs(view, width)], _footer(view, width)
    room = height - len(footer)
    lines = [*header, *lists(view, width, room - len(header))][: max(0, room)]
    lines += [Text("")] * (room - len(lines))
    return (lines + footer)[-height:]


def fitted(line: Text, width: int | None, *, unicode: bool) -> Text:
    """The line in the characters that the terminal has, and never on two lines."""
    if width is not None:
        line.truncate(width, overflow="ellipsis")
    if not unicode:
        line = Text(in_ascii(line.plain), style=line.style, spans=line.spans)
    line.no_wrap, line.overflow = True, "crop"
    return line


def plain(lines: Sequence[Text]) -> Iterator[str]:
    return (line.plain.rstrip() for line in lines)


# -- the header --


def _header(view: View, width: int | None) -> list[Text]:
    snapshot = view.snapshot
    at = f"{snapshot.now.astimezone():%H:%M:%S}"
    first = Text(f"convertq top · {shown(view.where)} · {at}", style="bold")
    if view.problem:
        words = f"{view.problem.what} · below: as of {at} · {shown(view.problem.reason)}"
        first = Text(_padded(words, width), style="bold white on red")
    minute = f"last 60s: {snapshot.completed_60s} complete, {snapshot.failed_60s} failed · breaker: "
    breakers = _breaker(snapshot.breaker, len(snapshot.gateways))
    lines = [first, _jobs(snapshot), Text(minute).append_text(breakers)]
    return [*lines, _pauses(snapshot.pauses)] if snapshot.pauses else lines


def _jobs(snapshot: Snapshot) -> Text:
    oldest, parts = snapshot.oldest_queued_seconds, []
    for status in STATUSES:
        number = snapshot.jobs[status]
        waits = f" (oldest {duration(oldest)})" if status == JobStatus.QUEUED and oldest is not None else ""
        if number or status not in RARE:  # the line is short
            parts.append(Text(f"{number:,} {status}{waits}", style=JOBS.get(status, "") if number else ""))
    return Text("jobs: ").append_text(Text(", ").join(parts))


def _breaker(breaker: Row, gateways: int = 1) -> Text:
    """The worst one; of several gateways with its name."""
    name = f"{breaker['gateway']} " if gateways > 1 else ""
    return Text(name).append_text(_breaker_state(breaker))


def _breaker_state(breaker: Row) -> Text:
    state = Text(in_words(breaker["state"]), style=COLOURS[breaker["state"]])
    calls = f"; {breaker['failures']} of {breaker['calls']} gateway calls failed" if breaker["calls"] else ""
    if breaker["state"] == "closed":
        return state.append(calls, style="default")
    state.stylize("bold reverse")
    how = " by hand" if breaker["by_hand"] else ""
    words = f"{how} for {duration(breaker['open_seconds'])}; probe: {next_probe(breaker)}{calls}"
    return Text("").append_text(state).append(shown(words))


def _pauses(pauses: Sequence[Row]) -> Text:
    return Text("paused: ").append(shown("; ".join(map(pause_in_words, pauses))), style="yellow")


def _graphs(view: View, width: int) -> list[Text]:
    after = [
        f" {view.snapshot.jobs[JobStatus.QUEUED]:,}, peak {view.queued.peak:,.0f}",
        f" {view.snapshot.rate:.1f}, peak {view.rate.peak:.1f}",
    ]
    room = width - len("queued ") - max(map(len, after))
    return [
        Text("queued ").append(view.queued.graph(room), style="yellow").append(after[0]),
        Text("done/s ").append(view.rate.graph(room), style="green").append(after[1]),
    ]


def _last_hour(view: View, width: int | None) -> list[Text]:
    """Graphs by the minute, from the database: as many minutes as fit, the newest at the right."""
    if not view.minutes:
        return []
    lines = []
    for name, column, style in (("unfinished", "depth", "yellow"), ("done/min", "completed", "green")):
        values = [float(minute[column]) for minute in view.minutes]
        after = f" {values[-1]:,.0f}, peak {max(values):,.0f} in {len(values)} min"
        room = len(values) if width is None else max(1, width - NAME_COLUMNS - len(after))
        lines.append(Text(f"{name:<{NAME_COLUMNS}}").append(sparkline(values)[-room:], style=style).append(after))
    return lines


# -- the footer --


def _footer(view: View, width: int) -> list[Text]:
    line = Text(cut(view.message, width), style="bold") if view.message else Text(cut(_selected(view), width))
    return [line, Text(_padded(HELP if view.shows_help else KEYS, width), style="reverse")]


def _selected(view: View) -> str:
    """The whole id, to be copied, and as much of the rest as there is room for."""
    if view.position is None:
        return ""
    row = view.snapshot.errors[view.position]
    return f"{row['id']}  {shown(row['original_filename'] or '-')}: {shown(row['error_message'] or '-')}"


def _padded(text: str, width: int | None) -> str:
    return text if width is None else cut(text, width) + " " * (width - columns(text))
