"""Every hardening line is compatible with the work: uploads, results, both ways to the database, log, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen
from uuid import uuid4

import pytest
from convertq.embedded.postgres import free_port

from tests.systemd.box import ROOT
from tests.systemd.conftest import Host
from tests.waiting import eventually

POOL = "convertq-worker@socket.service"
LOG = "/var/log/convertq/convertq.log"


@pytest.fixture
def pool(host: Host, worker: str) -> Iterator[str]:
    """A pool of its own: the database over its socket, without a password; the gateway by name; a log file; metrics."""
    host.configure(
        "/etc/convertq/worker-socket.env", DATABASE_URL=host.database.socket_url, WORKER_CONCURRENCY="2",
        LOG_FILE=LOG, METRICS_PORT=str(free_port()), GATEWAY_URL=f"http://localhost:{host.gateway_port}",
    )  # fmt: skip
    host.box.systemctl("start", POOL)
    yield POOL
    host.box.systemctl("stop", POOL)
    host.box.sh("rm -f /var/log/convertq/*")


def metrics_port(host: Host) -> str:
    return host.box.sh("sed -n \"s/^METRICS_PORT='\\(.*\\)'/\\1/p\" /etc/convertq/worker-socket.env")


def test_a_pool_works_over_the_databases_socket_and_serves_metrics_and_writes_its_log(host: Host, pool: str) -> None:
    jobs = host.submit(8)
    host.wait_for(jobs, "complete")
    eventually(lambda: host.box.show(pool, "StatusText").startswith("2 workers"), what="the pool's own settings")
    holders = {row["worker"] for row in host.database.rows("SELECT meta ->> 'worker' AS worker FROM job_events"
               " WHERE event_type = 'complete' AND job_id = ANY (%s::uuid[])", jobs)}  # fmt: skip
    main = host.box.show(pool, "MainPID")
    assert {holder.split(":")[1] for holder in holders} == {main}
    with urlopen(f"http://127.0.0.1:{metrics_port(host)}/metrics") as scrape:
        assert b'convertq_jobs{status="complete"}' in scrape.read()
    log = host.box.sh(f"cat {LOG}")
    assert all(job in log for job in jobs)
    assert host.box.sh(f"stat -c '%U:%G %a' {LOG}") == "convertq:convertq 640"
    host.assert_each_has_its_one_result(jobs)


def test_two_pools_share_one_host_and_one_queue(host: Host, worker: str, pool: str) -> None:
    host.box.systemctl("start", worker)
    jobs = host.submit(24)
    host.wait_for(jobs, "complete")
    assert host.stories(jobs) == {"created queued processing complete": 24}
    assert [row["concurrency"] for row in host.running_servers()] == [2, 4]


def test_a_web_application_in_the_group_puts_uploads_there(host: Host, worker: str) -> None:
    box, job = host.box, str(uuid4())
    box.sh("id webapp >/dev/null 2>&1 || useradd --system --no-create-home -G convertq webapp")
    source = f"/var/lib/convertq/uploads/{job}.pdf"
    box.sh('cp "$1" /srv/sample.pdf; chmod 644 /srv/sample.pdf', str(ROOT / "gateway/samples/hotel.pdf"))
    box.run("runuser", "-u", "webapp", "--", "cp", "/srv/sample.pdf", source)
    assert box.sh('stat -c "%U:%G" "$1"', source) == "webapp:convertq"
    box.systemctl("start", worker)
    host.database.rows(
        "INSERT INTO jobs (id, bytes, sha256, status) VALUES (%s, %s, %s, 'queued') RETURNING id",
        job, int(box.sh('stat -c %s "$1"', source)), "0" * 64,
    )  # fmt: skip
    host.wait_for([job], "complete")
    assert box.sh('stat -c "%U:%G %a" "$1"', f"/var/lib/convertq/results/{job}.xml") == "convertq:convertq 640"


def test_logrotate_takes_the_log_away_and_no_line_is_lost(host: Host, pool: str) -> None:
    box = host.box
    if box.run("sh", "-c", "command -v logrotate", check=False).returncode:
        pytest.skip("logrotate is not installed")
    jobs = host.submit(12)
    host.wait_for(jobs, "complete", 2)
    print(box.run("logrotate", "-vf", "/etc/logrotate.d/convertq").stdout)
    host.wait_for(jobs, "complete")
    box.systemctl("stop", pool)
    old, new = (box.sh(f"cat {LOG}{suffix}").splitlines() for suffix in (".1", ""))
    assert '"event": "ready"' in "".join(old)
    assert '"event": "shutdown"' in "".join(new)
    told = [line for line in old + new if '"event": "complete"' in line]
    assert sorted(job for line in told for job in jobs if f'"job_id": "{job}"' in line) == sorted(jobs)
    assert box.sh(f"stat -c '%U:%G %a' {LOG}") == "convertq:convertq 640"
