"""A call that cannot even be aborted: its process goes, the job is settled in time, and another worker goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import processes
from tests.conftest import Supervisor
from tests.documents import Documents
from tests.stand_in_gateway import StandInGateway

#: The first resolution of the gateway's name never returns: there is no socket yet that could be shut.
SILENT_NAME_SERVER = """#!{python}
import os, socket, threading
find = socket.getaddrinfo
def getaddrinfo(host, port, *rest, **more):
    if port == {port}:
        try:
            os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            threading.Event().wait()
    return find(host, port, *rest, **more)
socket.getaddrinfo = getaddrinfo
from convertq.cli.main import main
main()
"""


def test_a_worker_whose_call_hangs_for_ever_settles_its_job_in_time_and_is_replaced(
    supervisor: Supervisor,
    documents: Documents,
    gateway: StandInGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = tmp_path / "convertq"
    port = gateway.url.rpartition(":")[2]
    script.write_text(SILENT_NAME_SERVER.format(python=sys.executable, port=port, marker=str(tmp_path / "hung")))
    script.chmod(0o755)
    monkeypatch.setattr(processes, "CONSOLE_SCRIPT", str(script))
    host = supervisor(WORKER_CONCURRENCY=1, GATEWAY_TIMEOUT_MS=5000, RETRY_BASE_DELAY_MS=1, RETRY_JITTER_MAX_MS=1)
    job_id = documents.put()
    documents.wait_for(job_id, "complete")

    assert documents.story(job_id) == "created queued processing retry processing complete"
    assert host.wait_for_event("retry")["error_code"] == "GW_TIMEOUT"
    assert len(host.events("retry")) == 1
    assert len({started["pid"] for started in host.events("worker_start")}) == 2
    assert len(gateway.requests_of(job_id)) == 1
