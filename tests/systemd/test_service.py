"""The service in its daily life: start, work, restart, reload, stop, status, journal."""

from __future__ import annotations

import json
import re

from tests.systemd.conftest import Host
from tests.waiting import eventually

ONCE = "created queued processing complete"


def test_two_hundred_jobs_survive_two_restarts_and_a_stop_each_done_once(
    installed: str, host: Host, worker: str
) -> None:
    print(f"\n{installed}")
    box = host.box
    box.systemctl("start", worker)
    assert (box.show(worker, "ActiveState"), box.show(worker, "SubState")) == ("active", "running")
    assert len(host.running_servers()) == 1
    jobs = host.submit(200)
    for done in (20, 80):
        host.wait_for(jobs, "complete", done)
        box.systemctl("restart", worker)
        assert host.statuses(jobs)["complete"] < 200, "the restart was not under load"
        assert box.show(worker, "Result") == "success"
    host.wait_for(jobs, "complete", 140)
    box.systemctl("stop", worker)
    assert (box.show(worker, "Result"), box.show(worker, "ExecMainStatus")) == ("success", "0")
    assert host.statuses(jobs).get("processing") is None
    box.systemctl("start", worker)
    host.wait_for(jobs, "complete")
    box.systemctl("stop", worker)
    assert box.show(worker, "Result") == "success"
    assert host.stories(jobs) == {ONCE: 200}
    assert calls_of(host, jobs) == 200
    host.assert_each_has_its_one_result(jobs)
    print("200 jobs, two restarts, a stop and a start: each converted by one call, Result=success each time")


def calls_of(host: Host, jobs: list[str]) -> int:
    """As the gateway counts them."""
    log = host.box.journal("test-gateway.service", "-o", "cat")
    return sum(any(job in line for job in jobs) for line in log.splitlines())


def test_a_reload_under_load_replaces_every_worker_and_loses_nothing(host: Host, worker: str) -> None:
    box = host.box
    host.configure(LOG_FILE="/var/log/convertq/convertq.log")
    box.systemctl("start", worker)
    main = box.show(worker, "MainPID")
    before = set(children_of(host, main))
    jobs = host.submit(40)
    host.wait_for(jobs, "complete", 4)
    box.sh("mv /var/log/convertq/convertq.log /var/log/convertq/convertq.log.1")
    box.systemctl("reload", worker)
    box.wait_until(worker, "ActiveState", "active")
    assert box.show(worker, "MainPID") == main
    eventually(lambda: not before & set(children_of(host, main)), what="every worker to be replaced")
    host.wait_for(jobs, "complete")
    assert host.stories(jobs) == {ONCE: 40}
    assert box.show(worker, "NRestarts") == "0"
    copy = [json.loads(line) for line in box.sh("cat /var/log/convertq/convertq.log").splitlines()]
    assert "reload" in {event["event"] for event in copy}


def children_of(host: Host, pid: str) -> list[str]:
    return host.box.sh('cat "/proc/$1/task/$1/children"', pid).split()


def test_a_main_process_that_is_killed_during_a_reload_comes_back(host: Host, worker: str) -> None:
    box = host.box
    box.systemctl("start", worker)
    jobs = host.submit(40)
    host.wait_for(jobs, "complete", 2)
    box.systemctl("reload", "--no-block", worker)
    box.wait_until(worker, "ActiveState", "reloading")
    box.systemctl("kill", "--signal=KILL", "--kill-whom=main", worker)
    box.wait_until(worker, "NRestarts", "1")
    box.wait_until(worker, "ActiveState", "active")
    host.wait_for(jobs, "complete")


def test_a_grace_beyond_the_units_limit_is_granted(host: Host, worker: str) -> None:
    box = host.box
    box.change(worker, "[Service]\nTimeoutStopSec=2\n")
    box.change("test-gateway.service", gateway_with(host, "delay:6"))
    box.systemctl("restart", "test-gateway.service")
    try:
        box.systemctl("start", worker)
        [job] = host.submit(1)
        host.wait_for([job], "processing")
        box.systemctl("stop", worker)
    finally:
        box.revert("test-gateway.service")
        box.systemctl("restart", "test-gateway.service")
    assert box.show(worker, "Result") == "success"
    assert host.stories([job]) == {ONCE: 1}


def gateway_with(host: Host, fault: str) -> str:
    started = host.box.sh("grep ExecStart= /etc/systemd/system/test-gateway.service")
    return f"[Service]\nExecStart=\n{started} --fault {fault}\n"


def test_the_status_says_what_the_pool_does(host: Host, worker: str) -> None:
    host.box.systemctl("start", worker)
    jobs = host.submit(12)
    pattern = re.compile(r"4 workers, [1-4] busy, [0-9]+ done, breaker closed")
    eventually(lambda: pattern.fullmatch(host.box.show(worker, "StatusText")), what="a status with a busy worker")
    print(f"\n{host.box.systemctl('status', '--no-pager', '--lines=3', worker)}")
    host.wait_for(jobs, "complete")


def test_the_journal_can_be_read_by_jq_and_knows_each_level(host: Host, worker: str) -> None:
    box, since = host.box, host.box.now()
    box.systemctl("start", worker)
    [job] = host.submit(1)
    host.wait_for([job], "complete")
    victim = children_of(host, box.show(worker, "MainPID"))[0]
    box.run("kill", "-KILL", victim)
    command = (
        f"journalctl --sync; journalctl -u convertq-worker --since '{since}' -o cat | jq -crR 'fromjson? | .event'"
    )
    eventually(lambda: "worker_died" in box.sh(command).split(), what="the death in the journal")
    assert {"ready", "claim", "complete", "worker_died"} <= set(box.sh(command).split())
    entries = box.entries(worker, "--since", since)
    levels = {json.loads(entry["MESSAGE"])["level"]: entry["PRIORITY"] for entry in entries}
    assert levels["INFO"] == "6"
    assert levels["ERROR"] == "3"
    shown = box.journal(worker, "--since", since, "-p", "warning", "-o", "cat")
    print(f"\n{shown}")
    assert '"worker_died"' in shown
    assert '"claim"' not in shown
