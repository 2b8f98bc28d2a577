"""`make install` over an installation that works, and `make uninstall`: the work goes on, data and settings stay."""

from __future__ import annotations

import subprocess

from tests.systemd.box import ROOT
from tests.systemd.conftest import WEB, WEB_SOCKET, Host
from tests.web_client import Visitor

NEWER = "/srv/newer"
LISTING = (
    "find /usr/local /etc/convertq /etc/logrotate.d /var/lib/convertq -path '*/lib/convertq/*' -prune -o -print | sort"
)


def test_a_newer_version_takes_over_at_the_restart_and_removal_leaves_data_and_settings(
    host: Host, web_url: str
) -> None:
    box, worker, visitor = host.box, "convertq-worker.service", Visitor(web_url)
    box.sh(f"tar -C '{ROOT}' --exclude=./.venv --exclude=./.git -cf - . | (mkdir {NEWER}; tar -C {NEWER} -xf -)")
    box.sh(f"sed -i 's/^version = .*/version = 9.9.9/' {NEWER}/setup.cfg")
    box.sh("echo '# by hand' >> /etc/convertq/convertq.env; echo '# by hand' >> /etc/logrotate.d/convertq")
    box.systemctl("enable", "--now", worker, "convertq-reclaim.timer", WEB_SOCKET)
    assert visitor.get("/health").status_code == 200
    before = box.sh("sha256sum /etc/convertq/*.env /etc/logrotate.d/convertq")
    running = box.sh("readlink /usr/local/bin/convertq").rpartition("/bin/")[0]

    said = box.make("install", folder=NEWER)
    print(f"\n{said}")
    assert f"systemctl restart {WEB} {worker}" in said
    assert box.sh("convertq --version") == "convertq 9.9.9"
    assert box.sh("sha256sum /etc/convertq/*.env /etc/logrotate.d/convertq") == before
    assert box.sh("stat -c '%U:%G %a' /etc/convertq/convertq.env") == "root:convertq 640"
    box.sh('test -e "$1/bin/convertq"', running)  # the worker that runs still has its files, and so has the web
    assert visitor.get("/").status_code == 200
    assert versions(host) == ["0.1.0"]

    jobs = host.submit(60)
    host.wait_for(jobs, "complete", 8)
    box.systemctl("restart", worker, WEB)
    assert visitor.get("/").status_code == 200
    assert versions(host) == ["9.9.9"]
    host.wait_for(jobs, "complete")
    assert host.stories(jobs) == {"created queued processing complete": 60}

    files = box.sh(LISTING)
    box.make("install", folder=NEWER)
    assert box.sh(LISTING) == files
    box.sh('! test -e "$1"', running)  # which nobody uses any more
    assert len(box.sh("ls /usr/local/lib/convertq").split()) == 2

    data = box.sh("find /var/lib/convertq -type f | sort | sha256sum")
    print(box.make("uninstall"))
    assert box.sh("find /var/lib/convertq -type f | sort | sha256sum") == data
    assert box.sh("sha256sum /etc/convertq/*.env /etc/logrotate.d/convertq") == before
    assert box.sh("find /usr/local /etc/systemd -name '*convertq*'") == ""
    assert box.systemctl("list-units", "--all", "--plain", "--no-legend", "convertq-*") == ""
    assert versions(host) == []


def versions(host: Host) -> list[str]:
    return [row["version"] for row in host.database.rows("SELECT version FROM servers WHERE status = 'active'")]


def test_a_staged_installation_under_another_prefix_runs_where_it_is_put(
    host: Host, staged: subprocess.Popen[str]
) -> None:
    box = host.box
    said, _ = staged.communicate(timeout=300)
    assert "systemd was not reloaded" in said
    assert "/srv/stage" not in box.sh("cat /srv/stage/opt/elsewhere/lib/convertq/*/bin/convertq")
    box.sh("mv /srv/stage/opt/elsewhere /opt/elsewhere")
    assert box.sh("/opt/elsewhere/bin/convertq --version") == "convertq 0.1.0"
    unit = box.sh("cat /srv/stage/etc/systemd/system/convertq-worker.service")
    assert "\nExecStart=/opt/elsewhere/bin/convertq worker run\n" in unit
    box.make("uninstall", "DESTDIR=/srv/stage", "PREFIX=/opt/elsewhere")
    assert sorted(box.sh("find /srv/stage -type f").split()) == [
        "/srv/stage/etc/convertq/convertq.env",
        "/srv/stage/etc/logrotate.d/convertq",
    ]
