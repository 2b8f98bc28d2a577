"""The units themselves: well-formed, hardened, fired by their timers."""

from __future__ import annotations

import pytest

from tests.systemd.conftest import Host
from tests.waiting import eventually

SERVICES = ("worker", "worker@a", "reclaim", "cleanup", "doctor", "migrate", "web")
TIMERS = ("reclaim", "cleanup", "doctor")
SOON = "[Timer]\nOnCalendar=\nOnActiveSec=100ms\nAccuracySec=10ms\nRandomizedDelaySec=0\n"


def test_systemd_has_nothing_to_say_about_the_units(host: Host) -> None:
    units = [f"convertq-{name}.service" for name in SERVICES] + [f"convertq-{name}.timer" for name in TIMERS]
    units += ["convertq-web.socket"]
    verified = host.box.run("systemd-analyze", "verify", *units, check=False)
    print(f"\nsystemd-analyze verify: exit {verified.returncode}, {len(units)} units {verified.stdout or 'clean'}")
    about_ours = [line for line in verified.stdout.splitlines() if "convertq" in line]
    assert (verified.returncode, about_ours) == (0, [])


def test_every_service_is_exposed_at_two_at_most(host: Host) -> None:
    for name in SERVICES:
        judged = host.box.run("systemd-analyze", "security", "--no-pager", f"convertq-{name}.service").stdout
        print(f"\n{judged.splitlines()[-1]}", end="")
        exposure = float(judged.rpartition("Overall exposure level for")[2].split(":")[1].split()[0])
        assert exposure <= 2.0, judged
    print()


def test_the_timers_fire(host: Host, worker: str) -> None:
    box = host.box
    box.systemctl("start", worker)
    try:
        for name in TIMERS:
            box.change(f"convertq-{name}.timer", SOON)
            box.systemctl("start", f"convertq-{name}.timer")
        print(f"\n{box.run('systemctl', 'list-timers', '--all', '--no-pager', 'convertq-*').stdout}")
        for name in TIMERS:
            assert_ran_well(host, f"convertq-{name}.service")
        print(box.journal("convertq-doctor.service", "-o", "cat"))
    finally:
        for name in TIMERS:
            box.systemctl("stop", f"convertq-{name}.timer")
            box.revert(f"convertq-{name}.timer")


def assert_ran_well(host: Host, service: str) -> None:
    eventually(lambda: host.box.show(service, "ExecMainExitTimestampMonotonic") != "0", what=f"{service} to run")
    assert (host.box.show(service, "Result"), host.box.show(service, "ExecMainStatus")) == ("success", "0")


def test_the_doctor_fails_with_its_remedy_in_the_journal_when_the_gateway_is_gone(host: Host, worker: str) -> None:
    box, since = host.box, host.box.now()
    box.systemctl("start", worker)
    box.systemctl("stop", "test-gateway.service")
    try:
        box.systemctl("start", "convertq-doctor.service", check=False)
    finally:
        box.systemctl("start", "test-gateway.service")
    assert box.show("convertq-doctor.service", "Result") == "exit-code"
    assert "check GATEWAY_URL, and that the gateway runs" in box.journal("convertq-doctor.service", "--since", since)
    assert "convertq-doctor.service" in box.systemctl("--failed", "--plain", "--no-legend")


@pytest.mark.parametrize("unit", ["convertq-worker.service", "convertq-worker@a.service"])
def test_a_start_limit_never_leaves_the_queue_alone(host: Host, unit: str) -> None:
    assert host.box.show(unit, "StartLimitIntervalUSec") == "0"
    assert host.box.show(unit, "Restart") == "on-failure"
