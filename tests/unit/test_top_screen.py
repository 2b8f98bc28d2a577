"""top's screen: it fits any terminal, shows what matters, and selects jobs rather than rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from convertq.cli.top.lists import shares
from convertq.cli.top.screen import fitted, page, plain, screen
from convertq.cli.top.snapshot import STATUSES, DatabaseProblem, Snapshot
from convertq.cli.top.view import View
from convertq.queue.status import JobStatus
from rich.cells import cell_len

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
CLOSED = {
    "state": "closed", "by_hand": False, "opened_at": None, "open_seconds": None, "next_probe_seconds": None,
    "probe_by": None, "trial_job": None, "calls": 20, "failures": 1, "gateway": "default",
}  # fmt: skip
OPEN = {**CLOSED, "state": "open", "opened_at": NOW, "open_seconds": 65.0, "next_probe_seconds": 12.0}


def error(number: int, state: str = "failed", **columns: Any) -> dict[str, Any]:
    return {
        "id": UUID(int=number << 96), "state": state, "attempts": 3, "at": NOW - timedelta(seconds=90),
        "error_code": "GW_5XX", "error_message": f"the gateway answered 503 to call {number}",
        "original_filename": f"invoice-{number}.pdf", **columns,
    }  # fmt: skip


def job(slot: int, **columns: Any) -> dict[str, Any]:
    return {
        "slot": str(slot), "job_id": UUID(int=slot << 96), "attempt": 1, "bytes": 2_000_000, "seconds": 10.0 * slot,
        "lease_seconds": 500.0, "step": None, "percent": None, **columns,
    }  # fmt: skip


def server(name: str = "alpha", jobs: tuple[dict[str, Any], ...] = (), **columns: Any) -> dict[str, Any]:
    return {
        "id": f"{name}:42:aaaa", "hostname": name, "pid": 42, "version": "1", "environment": "test", "concurrency": 8,
        "status": "active", "up_seconds": 3600.0, "heartbeat_seconds": 3.0, "jobs": list(jobs), **columns,
    }  # fmt: skip


def snapshot(**changes: Any) -> Snapshot:
    made = Snapshot(
        now=NOW,
        jobs={**dict.fromkeys(JobStatus, 0), "queued": 12, "processing": 2, "failed": 3, "complete": 1_234_567},
        oldest_queued_seconds=192.0,
        completed_10s=25,
        completed_60s=150,
        failed_60s=4,
        breaker=CLOSED,
        gateways={"default": CLOSED},
        servers=[server(jobs=(job(1), job(2, step="converting", percent=40)))],
        errors=[error(1), error(2, "retrying"), error(3)],
    )
    return replace(made, **changes)


def lines(view: View, width: int = 80, height: int = 24, *, unicode: bool = True) -> list[str]:
    return list(plain([fitted(line, width, unicode=unicode) for line in screen(view, width, height)]))


def text(view: View, width: int = 80, height: int = 24) -> str:
    return "\n".join(lines(view, width, height))


def crowded() -> View:
    """More of everything than fits, in words that are wide, long, or try to leave their line."""
    view = View(snapshot(), where="db.example:5432/convertq" * 5)
    worst = "größer\nals 漢字漢字 \x1b[2J" * 9
    full = snapshot(
        jobs=dict.fromkeys(snapshot().jobs, 10**9),
        breaker=OPEN,
        servers=[server(f"host-{name}-" * 9, tuple(job(slot) for slot in range(30))) for name in range(9)],
        errors=[error(number, error_message=worst, original_filename=worst) for number in range(50)],
    )
    for _ in range(300):
        view.update(full)
    view.move(1)
    return view


def test_every_state_of_a_job_is_counted() -> None:
    assert set(STATUSES) == set(JobStatus)


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (200, 50), (120, 30), (119, 24), (40, 10), (20, 5), (10, 3), (3, 2), (1, 1)]
)
def test_a_screen_has_as_many_lines_as_the_terminal_and_none_is_wider(width: int, height: int, unicode: bool) -> None:
    for view in (crowded(), View(snapshot(servers=[], errors=[])), View(snapshot(), message="m" * 500)):
        drawn = lines(view, width, height, unicode=unicode)
        assert len(drawn) == height
        assert all(cell_len(line) <= width for line in drawn)
        assert all(line.isprintable() for line in drawn)


def test_without_unicode_every_character_is_ascii() -> None:
    assert "\n".join(lines(crowded(), unicode=False)).isascii()


def test_the_first_lines_say_how_deep_how_old_and_how_fast() -> None:
    view = View(snapshot())
    view.update(snapshot())
    drawn = text(view)
    assert "12 queued (oldest 3m12s), 2 processing, 3 failed, 1,234,567 complete" in drawn
    assert "150 complete, 4 failed" in drawn
    assert "2.5, peak 2.5" in drawn


def test_a_closed_breaker_is_said_in_a_word_and_an_open_one_with_what_comes_next() -> None:
    assert "breaker: closed; 1 of 20 gateway calls failed" in text(View(snapshot()))
    assert "breaker: open for 1m05s; probe: in 12s" in text(View(snapshot(breaker=OPEN)))
    by_hand = text(View(snapshot(breaker={**OPEN, "by_hand": True})), width=120)
    assert "open by hand for 1m05s; probe: none, until `convertq breaker close`" in by_hand


def test_a_worker_is_shown_with_its_job_its_age_and_its_progress() -> None:
    [line] = [line for line in lines(View(snapshot())) if line.startswith("alpha:42/2")]
    assert line.split() == ["alpha:42/2", "00000002", "20s", "1", "2.0", "MB", "████──────", "40%", "converting"]


def test_a_lease_that_has_run_out_is_seen() -> None:
    assert "its lease has expired" in text(View(snapshot(servers=[server(jobs=(job(1, lease_seconds=-1.0),))])))


def test_the_job_of_a_server_that_is_dead_does_not_look_as_if_it_went_on() -> None:
    jobs = (job(1, step="converting", percent=40),)
    [line] = [
        line for line in lines(View(snapshot(servers=[server(jobs=jobs, status="dead")]))) if "alpha:42/1" in line
    ]
    assert line.endswith("its server is dead")


@pytest.mark.parametrize("width", [None, 200, 80, 40])
def test_a_single_frame_has_the_graphs_of_the_last_hour(width: int | None) -> None:
    minutes = [{"completed": number % 7, "depth": number} for number in range(60)]
    depth, done = list(plain(page(View(snapshot(), minutes=minutes), width)))[4:6]
    assert depth.startswith("unfinished ")
    assert depth.endswith("█ 59, peak 59 in 60 min")
    assert done.endswith(" 3, peak 6 in 60 min")
    assert width is None or max(cell_len(depth), cell_len(done)) <= width


def test_where_not_all_workers_fit_the_longest_running_are_shown() -> None:
    view = View(snapshot(servers=[server(jobs=tuple(job(slot) for slot in range(1, 41)))], errors=[]))
    drawn = text(view)
    assert "alpha:42/40" in drawn
    assert "alpha:42/1 " not in drawn
    assert "40 busy, 0 idle, " in drawn
    assert "not shown" in drawn


def test_an_empty_queue_says_what_is_missing() -> None:
    drawn = text(View(snapshot(servers=[], errors=[])))
    assert "start one with `convertq worker run`" in drawn
    assert "no job is being converted" in drawn
    assert "no job has failed or waits for a retry" in drawn


def test_whole_ids_and_file_names_are_shown_where_there_is_room() -> None:
    assert str(UUID(int=1 << 96)) not in text(View(snapshot()), width=119)
    wide = text(View(snapshot()), width=120)
    assert str(UUID(int=1 << 96)) in wide
    assert "invoice-1.pdf" in wide


def test_one_frame_without_an_edge_is_not_cut() -> None:
    message = "m" * 200
    drawn = "\n".join(plain(page(View(snapshot(errors=[error(1, error_message=message)])), None)))
    assert message in drawn
    assert "…" not in drawn


def test_trouble_is_in_the_first_line_with_the_age_of_what_is_below() -> None:
    view = View(snapshot(), problem=DatabaseProblem("database unreachable, trying again", "refused"))
    assert lines(view)[0].startswith("database unreachable, trying again · below: as of ")
    view.update(snapshot())
    assert "unreachable" not in text(view)


def test_the_selected_job_is_marked_and_its_whole_id_is_below() -> None:
    view = View(snapshot())
    view.move(1)
    view.move(1)
    drawn = lines(view)
    assert [line[:10] for line in drawn if line.startswith(">")] == ["> 00000002"]
    assert drawn[-2].startswith(str(UUID(int=2 << 96)))


def test_the_selection_stays_with_its_job_when_others_come_before_it() -> None:
    view = View(snapshot())
    view.move(1)
    view.update(snapshot(errors=[error(9), error(8), error(1)]))
    assert view.selected == error(1)["id"]
    assert view.position == 2


def test_the_next_job_is_selected_when_the_selected_one_leaves() -> None:
    view = View(snapshot())
    view.move(1)
    view.update(snapshot(errors=[error(2), error(3)]))
    assert view.selected == error(2)["id"]
    view.update(snapshot(errors=[]))
    assert view.selected is None


def test_the_selection_stops_at_both_ends() -> None:
    view = View(snapshot())
    for _ in range(9):
        view.move(1)
    assert view.position == 2
    for _ in range(9):
        view.move(-1)
    assert view.position == 0


def test_the_list_scrolls_so_that_the_selected_job_is_seen() -> None:
    view = View(snapshot(errors=[error(number) for number in range(1, 51)]))
    for _ in range(50):
        view.move(1)
    assert any(line.startswith("> 00000032") for line in lines(view))


@pytest.mark.parametrize(
    ("wanted", "room", "given"),
    [([2, 3, 4], 20, [2, 3, 4]), ([9, 9, 9], 8, [2, 3, 3]), ([1, 50, 50], 11, [1, 5, 5]), ([5, 5, 5], -3, [0, 0, 0])],
)
def test_the_lists_share_the_room_fairly(wanted: list[int], room: int, given: list[int]) -> None:
    assert shares(wanted, room) == given
