"""What goes wrong: a killed or hanging main process, wrong settings, a database that is not there yet."""

from __future__ import annotations

import pytest
from convertq.embedded.postgres import free_port

from tests.systemd.conftest import Database, Host
from tests.waiting import eventually


def test_a_killed_main_process_is_started_again_and_nothing_is_lost(host: Host, worker: str) -> None:
    box, since = host.box, host.box.now()
    box.systemctl("start", worker)
    jobs = host.submit(60)
    host.wait_for(jobs, "complete", 8)
    box.systemctl("kill", "--signal=KILL", "--kill-whom=main", worker)
    box.wait_until(worker, "NRestarts", "1")
    box.wait_until(worker, "ActiveState", "active")
    host.wait_for(jobs, "complete")
    assert sum(count for story, count in host.stories(jobs).items() if story.count("complete") == 1) == 60
    assert sum(count for story, count in host.stories(jobs).items() if "reclaimed" in story) > 0
    host.assert_each_has_its_one_result(jobs)
    why = box.journal(worker, "--since", since, "-o", "cat")
    assert "Main process exited, code=killed, status=9/KILL" in why
    assert "restart counter is at 1" in why


def test_a_main_process_that_hangs_is_ended_by_the_watchdog_and_its_jobs_are_recovered(host: Host, worker: str) -> None:
    box, since = host.box, host.box.now()
    box.change(worker, "[Service]\nWatchdogSec=6\n")
    box.systemctl("start", worker)
    jobs = host.submit(60)
    host.wait_for(jobs, "complete", 8)
    box.systemctl("kill", "--signal=STOP", "--kill-whom=main", worker)
    box.wait_until(worker, "NRestarts", "1")
    box.wait_until(worker, "ActiveState", "active")
    host.wait_for(jobs, "complete")
    host.assert_each_has_its_one_result(jobs)
    why = box.journal(worker, "--since", since, "-o", "cat")
    assert "Watchdog timeout (limit 6s)" in why
    assert "Fatal Python error: Aborted" in why  # and after it, where it hung
    shown = [line for line in why.splitlines() if not line.startswith("{")]
    print("\n" + "\n".join(shown))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("DATABASE_URL", "mysql://nowhere"), ("WORKER_CONCURRENCY", "none"), ("RESULTS_DIR", "/srv/results")],
)
def test_wrong_settings_fail_with_78_are_not_tried_again_and_are_named_in_the_journal(
    host: Host, worker: str, variable: str, value: str
) -> None:
    box, since = host.box, host.box.now()
    host.configure(**{variable: value})
    box.systemctl("start", worker, check=False)
    box.wait_until(worker, "ActiveState", "failed")
    assert (box.show(worker, "Result"), box.show(worker, "ExecMainStatus")) == ("exit-code", "78")
    assert box.show(worker, "NRestarts") == "0"
    said = box.journal(worker, "--since", since, "-p", "err", "-o", "cat")
    print(f"\n{said}")
    assert f"convertq: {variable}" in said


def test_a_fresh_installation_starts_by_itself_when_its_database_comes(host: Host, worker: str) -> None:
    """No tables, and no server to make them in: the migration is tried again, and the worker waits for both."""
    box = host.box
    database = Database(box, free_port())
    database.make()
    database.stop()
    host.configure(DATABASE_URL=database.url)
    box.systemctl("start", "--no-block", worker)
    eventually(lambda: "waiting for the database" in box.show(worker, "StatusText"), what="the worker to wait")
    assert box.show(worker, "ActiveState") == "activating"
    database.start()
    box.wait_until(worker, "ActiveState", "active")
    assert box.show(worker, "NRestarts") == "0"
    box.systemctl("stop", worker, database.unit)
