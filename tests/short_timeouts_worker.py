"""`convertq worker run` with short times: what takes twelve or sixty seconds takes a few, and all else is the same."""

from __future__ import annotations

import os

from convertq.cli.main import main
from convertq.queue.database import connection, database
from convertq.queue.store import s3_availability, s3_client
from convertq.worker.loop import attempt_monitor, claiming, maintenance, settling
from convertq.worker.supervisor import elasticity

for module in (connection, claiming, settling, attempt_monitor):
    module.ANSWER_TIMEOUT_SECONDS = 4  # type: ignore[attr-defined]
connection.BoundedConnection.answer_timeout_seconds = 4
connection.LOCK_TIMEOUT_SECONDS = database.LOCK_TIMEOUT_SECONDS = 0.2  # type: ignore
maintenance.RECLAIM_EVERY_SECONDS = 0.2
settling.STATEMENT_RETRY_SECONDS = float(os.environ.get("TEST_SETTLE_RETRY_SECONDS", "60"))
settling.STATEMENT_PAUSE_MAX_SECONDS = 0.2
elasticity.IDLE_SECONDS = 1.0
s3_availability.PROBE_EVERY_SECONDS, s3_availability.PROBE_TIMEOUT_SECONDS = 0.5, 1.0
s3_client.READ_TIMEOUT_SECONDS = 4.0

if __name__ == "__main__":
    main()
