"""`convertq config`: every setting with its source, no secret, and every problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from convertq.queue.masked_url import masked
from convertq.queue.settings import SETTINGS

from tests.processes import run as run_convertq

BASE = {"PATH": "/usr/bin", "DATABASE_URL": "postgresql://u:hush@h:5432/d?schema=s"}


def config(**variables: str) -> dict[str, dict[str, Any]]:
    done = run_convertq("config", "--json", environment=BASE | variables)
    assert (done.returncode, done.stderr) == (0, "")
    return {row["variable"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_every_setting_is_shown_with_where_it_comes_from() -> None:
    found = config(WORKER_CONCURRENCY="9", RESULTS_DIR="")
    assert list(found) == [setting.variable for setting in SETTINGS]
    concurrency = {"variable": "WORKER_CONCURRENCY", "value": 9, "source": "environment", "problem": None}
    assert found["WORKER_CONCURRENCY"] == concurrency
    assert (found["RESULTS_DIR"]["value"], found["RESULTS_DIR"]["source"]) == ("/app/results", "default")
    assert (found["LOG_FILE"]["value"], found["LOG_FILE"]["source"]) == (None, "not set")
    assert found["LOG_FORMAT"]["value"] == "json"
    assert found["MAPPINGS_ALLOWED"]["value"] == ["pt_simon_invoice_v1"]


def test_settings_that_a_gateways_file_replaces_are_shown_as_ignored(tmp_path: Path) -> None:
    file = tmp_path / "gateways.toml"
    file.write_text('[gateways.one]\nurl = "http://h:1"\nmappings = ["a"]\n')
    found = config(GATEWAYS_FILE=str(file), GATEWAY_URL="http://elsewhere")
    ignored = [name for name, row in found.items() if row["source"] == "ignored"]
    assert ignored == ["GATEWAY_URL", "MAPPINGS_ALLOWED"]
    assert [found[name]["value"] for name in ignored] == [None, None]


def test_secrets_are_masked_and_the_rest_of_the_url_is_shown() -> None:
    done = run_convertq("config", environment=BASE | {"GATEWAY_URL": "https://token:pw@gw:8002/process"})
    assert "postgresql://u:***@h:5432/d?schema=s" in done.stdout
    assert "https://***@gw:8002/process" in done.stdout
    assert not [secret for secret in ("hush", "pw", "token") if secret in done.stdout + done.stderr]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://u:@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:a%40b@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d"),
        ("postgresql://u:p#q?r@s@h/d", "postgresql://u:***@h/d"),
        (
            "postgresql:///d?host=/tmp&password=p&sslmode=require",
            "postgresql:///d?host=/tmp&password=***&sslmode=require",
        ),
        ("postgresql:///d?sslpassword=p&user=u", "postgresql:///d?sslpassword=***&user=u"),
        ("postgresql:///d?sslkey=/k&sslpassword=p", "postgresql:///d?sslkey=/k&sslpassword=***"),
        ("postgresql:///d?scram_client_key=p&user=u", "postgresql:///d?scram_client_key=***&user=u"),
        ("postgresql:///d?oauth_client_secret=p", "postgresql:///d?oauth_client_secret=***"),
        ("http://h:1", "http://h:1"),
        ("http://token@h:1/x", "http://***@h:1/x"),
        ("http://u:p@h", "http://***@h"),
    ],
)
def test_what_is_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_every_problem_is_said_with_exit_code_78_and_the_rest_is_shown() -> None:
    wrong = {"DATABASE_URL": "mysql://u:hush@h", "WORKER_CONCURRENCY": "many", "RETRY_MAX_ATTEMPTS": "0"}
    done = run_convertq("config", environment={"PATH": "/usr/bin", **wrong})
    assert done.returncode == 78
    assert [line.split()[1].rstrip(":") for line in done.stderr.splitlines()] == list(wrong)
    assert "hush" not in done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1 + len(SETTINGS)
    done = run_convertq("config", "--json", environment={"PATH": "/usr/bin", **wrong})
    found = {row["variable"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert found["WORKER_CONCURRENCY"]["problem"] == "must be a whole number from 1 to 1000, or a range such as 2..16"
    assert found["DATABASE_URL"]["value"] == "mysql://u:***@h"


def test_a_value_cannot_forge_a_line() -> None:
    done = run_convertq("config", environment=BASE | {"LOG_FILE": "/x\nLOG_LEVEL  DEBUG"})
    assert len(done.stdout.splitlines()) == 1 + len(SETTINGS)


def test_a_wrong_setting_is_marked_in_its_line() -> None:
    done = run_convertq("config", environment={"DATABASE_URL": "postgresql://h/x", "WORKER_CONCURRENCY": "0"})
    [line] = [line for line in done.stdout.splitlines() if line.startswith("WORKER_CONCURRENCY")]
    assert line.split(maxsplit=2) == ["WORKER_CONCURRENCY", "0", "environment, wrong"]
