"""`convertq worker run` that learns of a cancel in one way only: by a notification, or by a progress report."""

from __future__ import annotations

import os

from convertq.cli.main import main
from convertq.worker.loop import attempt_monitor
from convertq.worker.supervisor.database_tasks import DatabaseTasks

if os.environ["TEST_LEARNS_BY"] == "notification":
    attempt_monitor.FIRST_REPORT_SECONDS = attempt_monitor.REPORT_EVERY_SECONDS = 3600.0
else:
    DatabaseTasks._listen_for_cancels = lambda self, database: None  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
