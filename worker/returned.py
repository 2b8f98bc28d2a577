"""What is said of a job that a lost worker had: that it is back in the queue, or that it was given up."""

from __future__ import annotations

from convertq.worker.log import Log
from psycopg.rows import DictRow


def say_returned(log: Log, event: str, row: DictRow, **fields: object) -> None:
    """`row` is one of requeue_worker_jobs or reclaim_jobs. A job that failed is `failed`, whoever says so."""
    if row["status"] == "failed":
        event = "failed"
        fields |= {"error_code": row["error_code"], "error_message": row["error_message"], "dead_letter": True}
    log(event, job_id=row["id"], status=row["status"], attempt=row["attempt"], **fields)
