"""The files of systemd/: every setting is documented, every service is hardened alike, and all of them are shipped."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from convertq.queue.config import read_config
from convertq.queue.settings import SETTINGS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "systemd"
SERVICES = ("worker", "worker@", "reclaim", "cleanup", "doctor", "migrate", "web")
TIMERS = ("reclaim", "cleanup", "doctor")
EXAMPLE = (FOLDER / "convertq.env.example").read_text()
ASSIGNMENT = re.compile(r"^(#?)([A-Z][A-Z0-9_]+)=(.*)$", re.MULTILINE)


def lines_of(unit: str) -> list[str]:
    return [line for line in (FOLDER / unit).read_text().splitlines() if line and not line.startswith("#")]


def hardening_of(unit: str) -> list[str]:
    lines = (FOLDER / unit).read_text().partition("User=convertq\n")[2].partition("\n[Install]")[0].splitlines()
    return [line for line in lines if line]


def test_the_example_documents_every_setting_once() -> None:
    documented = [name for _, name, _ in ASSIGNMENT.findall(EXAMPLE)]
    assert sorted(documented) == sorted(setting.variable for setting in SETTINGS)


def test_what_the_example_comments_out_is_the_default_where_there_is_one() -> None:
    defaults = {setting.variable: setting.default for setting in SETTINGS if setting.default is not None}
    shown = {name: value for mark, name, value in ASSIGNMENT.findall(EXAMPLE) if mark and name in defaults}
    assert shown == {name: defaults[name] for name in shown}


@pytest.mark.parametrize("commented", [False, True])
def test_the_example_is_a_configuration_as_it_is_and_with_everything_turned_on(commented: bool) -> None:
    given = {name: value.strip("'") for mark, name, value in ASSIGNMENT.findall(EXAMPLE) if commented or not mark}
    assert read_config(given, needs_gateway=True).worker_environment == "production"


def test_every_service_is_hardened_as_the_worker_is() -> None:
    expected = hardening_of("convertq-worker.service")
    assert "ProtectSystem=strict" in expected
    assert [name for name in SERVICES if hardening_of(f"convertq-{name}.service") != expected] == []


def test_the_template_differs_from_the_worker_only_in_its_name_and_its_own_settings() -> None:
    alone, template = lines_of("convertq-worker.service"), lines_of("convertq-worker@.service")
    own = [line for line in template if line not in alone]
    assert own == [
        "Description=convertq: turns queued PDFs into XML, pool %i",
        "EnvironmentFile=-/etc/convertq/worker-%i.env",
    ]
    assert len(template) == len(alone) + 1


def test_every_timer_has_its_service() -> None:
    for name in TIMERS:
        assert (FOLDER / f"convertq-{name}.timer").exists()
        assert f"ExecStart=/usr/local/bin/convertq {name}" in lines_of(f"convertq-{name}.service")


def test_the_wheel_ships_all_of_them() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = [part.strip() for value in setup["options.data_files"].values() for part in re.split(r"[,\n]", value)]
    shipped = {path for pattern in patterns if pattern for path in ROOT.glob(pattern)}
    not_for_hosts = {FOLDER / "README.md", FOLDER / "install"}
    assert {path for path in FOLDER.rglob("*") if path.is_file()} - not_for_hosts <= shipped
