"""The log: one event one line, who speaks on each, and no value that forges another."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from convertq.queue.log.events import LEVELS
from convertq.queue.log.lines import Log, set_up_logging

from tests.jobs import config

EVENTS = (
    "worker_start ready reclaim claim start gateway_ok gateway_error complete retry failed cancelled requeue "
    "lease_extended lease_lost breaker_open breaker_closed held db_down db_up worker_died grow shrink shutdown"
)
#: of what runs beside the workers, and never stops them
OF_HELPERS = ("metrics_down", "log_file", "reload", "replica_down", "replica_up", "web", "web_error", "request")
EVIL = 'x"\n{"event": "forged"}\r\u2028\u0085\x1b[2J\0 \ud800 é'


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    logger = logging.getLogger("convertq")
    for handler in logger.handlers:
        handler.close()
    logger.handlers.clear()


def log_to(**settings: object) -> Log:
    chosen = config(**{"LOG_FORMAT": "json", "WORKER_ENVIRONMENT": "prod"} | settings)
    set_up_logging(chosen)
    return Log(chosen, "host:1:aaaa", "host:1:aaaa/2")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.split("\n") if line]


def test_the_events_are_these_and_no_others() -> None:
    assert list(LEVELS) == [*EVENTS.split(), *OF_HELPERS]


def test_every_line_says_when_how_loud_what_and_who(capsys: pytest.CaptureFixture[str]) -> None:
    log_to()("shutdown")
    [line] = lines(capsys)
    at = datetime.fromisoformat(line.pop("timestamp"))
    assert at.utcoffset() == timedelta(0)
    assert line == {
        "level": "INFO", "event": "shutdown", "server": "host:1:aaaa", "worker": "host:1:aaaa/2", "environment": "prod",
    }  # fmt: skip


def test_a_line_about_a_job_carries_it_as_the_correlation_id_too(capsys: pytest.CaptureFixture[str]) -> None:
    job = uuid4()
    log_to()("claim", job_id=job, status="processing", attempt=1, queued_ms=7)
    [line] = lines(capsys)
    assert (line["job_id"], line["correlation_id"]) == (str(job), str(job))
    assert (line["status"], line["attempt"], line["queued_ms"]) == ("processing", 1, 7)


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_value_from_outside_cannot_forge_a_line(capsys: pytest.CaptureFixture[str], style: str) -> None:
    log_to(LOG_FORMAT=style)("failed", error_message=EVIL)
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 1
    assert written.isascii()
    assert "\x1b" not in written


def test_a_value_from_outside_comes_back_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    log_to()("failed", error_message=EVIL)
    assert lines(capsys)[0]["error_message"] == EVIL


def test_text_is_short_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    log_to(LOG_FORMAT="text")("retry", job_id="j", reason="two words", gateway_status=None)
    words = capsys.readouterr().err.split()
    assert words[1:] == ["WARNING", "[2]", "retry", "job_id=j", 'reason="two', 'words"']


def test_quiet_events_are_left_out_at_a_higher_level(capsys: pytest.CaptureFixture[str]) -> None:
    log = log_to(LOG_LEVEL="WARNING")
    log("claim")
    log("retry")
    assert [line["event"] for line in lines(capsys)] == ["retry"]


def test_an_event_that_is_not_on_the_list_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        log_to()("surprise")


def test_a_copy_goes_to_the_file_as_json_and_survives_its_rotation(tmp_path: Path) -> None:
    log = log_to(LOG_FILE=tmp_path / "log", LOG_FORMAT="text")
    log("ready")
    (tmp_path / "log").rename(tmp_path / "log.1")
    log("shutdown")
    assert json.loads((tmp_path / "log.1").read_text())["event"] == "ready"
    assert json.loads((tmp_path / "log").read_text())["event"] == "shutdown"


def test_setting_up_again_does_not_double_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log_to()
    log_to()("ready")
    assert len(lines(capsys)) == 1
