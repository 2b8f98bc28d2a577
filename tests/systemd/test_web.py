"""The web behind its socket: started by the first visitor, and there for every other."""

from __future__ import annotations

import pytest
import requests
from convertq.embedded.postgres import free_port

from tests.systemd.box import ROOT
from tests.systemd.conftest import WEB, WEB_SOCKET, Database, Host
from tests.waiting import eventually
from tests.web_client import Visitor


def test_the_web_is_started_by_its_first_visitor_and_the_worker_takes_what_is_uploaded(
    host: Host, worker: str, web_url: str
) -> None:
    box, since, visitor = host.box, host.box.now(), Visitor(web_url)
    assert box.show(WEB, "ActiveState") == "inactive"
    assert visitor.get("/ready").status_code == 200
    assert box.show(WEB, "ActiveState") == "active"
    assert "Finished convertq-migrate.service" in box.journal("convertq-migrate.service", "--since", since)
    job = str(visitor.submitted((ROOT / "gateway/samples/hotel.pdf").read_bytes()))
    directories = box.sh("cd /var/lib/convertq; stat -c '%n %U:%G %a' uploads results").splitlines()
    assert directories == ["uploads convertq:convertq 2770", "results convertq:convertq 2750"]
    assert box.sh('stat -c "%U:%G %a" "$1"', f"/var/lib/convertq/uploads/{job}.pdf") == "convertq:convertq 640"
    box.systemctl("start", worker)
    host.wait_for([job], "complete")
    assert visitor.get(f"/api/jobs/{job}/download").content.startswith(b"<?xml")
    print(f"\n{box.systemctl('status', '--no-pager', '--lines=5', WEB_SOCKET, WEB)}")


def test_no_visitor_meets_a_restart_of_the_web(host: Host, web_url: str) -> None:
    """Each comes with a connection of its own."""
    box = host.box
    answers = [Visitor(web_url).get("/health").status_code]
    for _ in range(3):
        before = box.show(WEB, "MainPID")
        restart = box.begin("systemctl", "restart", WEB)
        while restart.poll() is None:
            answers.append(Visitor(web_url).get("/health").status_code)
        assert restart.returncode == 0, restart.communicate()[0]
        assert (box.show(WEB, "ActiveState"), box.show(WEB, "Result")) == ("active", "success")
        assert box.show(WEB, "MainPID") != before
    print(f"\n{len(answers)} visitors during three restarts: {set(answers)}")
    assert set(answers) == {200}


def test_a_web_that_was_stopped_or_killed_is_there_for_the_next_visitor(host: Host, web_url: str) -> None:
    box, visitor = host.box, Visitor(web_url)
    assert visitor.get("/health").status_code == 200
    box.systemctl("stop", WEB)
    assert (box.show(WEB, "Result"), box.show(WEB, "ActiveState")) == ("success", "inactive")
    assert Visitor(web_url).get("/health").status_code == 200
    box.systemctl("kill", "--signal=KILL", "--kill-whom=main", WEB)
    box.wait_until(WEB, "NRestarts", "1")
    assert Visitor(web_url).get("/health").status_code == 200


def test_the_web_starts_without_its_database_and_is_ready_when_that_comes(host: Host, web_url: str) -> None:
    """No tables, and no server to make them in: the migration is tried again, and the pages say what is wrong."""
    database = Database(host.box, free_port())
    database.make()
    database.stop()
    host.configure(DATABASE_URL=database.url, WEB_PROCESSES="1")
    visitor = Visitor(web_url)
    assert (visitor.get("/health").status_code, visitor.get("/ready").status_code) == (200, 503)
    database.start()
    eventually(lambda: visitor.get("/ready").status_code == 200, what="the web to be ready")
    assert host.box.show(WEB, "NRestarts") == "0"
    host.box.systemctl("stop", WEB_SOCKET, WEB, database.unit)


def test_wrong_settings_of_the_web_are_named_in_the_journal_and_not_tried_for_ever(host: Host, web_url: str) -> None:
    box, since = host.box, host.box.now()
    host.configure(WEB_PROCESSES="none")
    with pytest.raises(requests.ConnectionError):
        Visitor(web_url).get("/health", timeout=60)
    box.wait_until(WEB_SOCKET, "ActiveState", "failed")
    assert (box.show(WEB_SOCKET, "Result"), box.show(WEB, "ExecMainStatus")) == ("service-start-limit-hit", "78")
    said = box.journal(WEB, "--since", since, "-p", "err", "-o", "cat")
    print(f"\n{box.systemctl('show', '-p', 'ActiveState,Result', WEB_SOCKET)}\n{said}")
    assert "convertq: WEB_PROCESSES" in said
    host.configure(WEB_PROCESSES="1")
    box.systemctl("reset-failed", WEB_SOCKET, WEB)  # or ten seconds later
    box.systemctl("start", WEB_SOCKET)
    assert Visitor(web_url).get("/health").status_code == 200
