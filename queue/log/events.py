"""The table of log events: how severe each one is, and what it means."""

from __future__ import annotations

import logging

#: event -> its level, and its meaning for docs/operations.md (`make docs`)
EVENTS = {
    "worker_start": (logging.INFO, "A worker process started."),
    "ready": (logging.INFO, "Every worker of the pool is connected."),
    "reclaim": (logging.WARNING, "A job of a lost worker was reclaimed."),
    "claim": (logging.INFO, "A worker claimed a job; `queued_ms` is how long it waited."),
    "start": (logging.INFO, "An attempt begins."),
    "gateway_ok": (logging.INFO, "The gateway converted the document."),
    "gateway_error": (logging.WARNING, "The gateway call failed."),
    "complete": (logging.INFO, "The result is published and the job complete."),
    "retry": (logging.WARNING, "The attempt failed; another one is scheduled."),
    "failed": (logging.ERROR, "The job failed for good."),
    "cancelled": (logging.INFO, "A worker dropped a job that was cancelled."),
    "requeue": (logging.WARNING, "The job went back to the queue: its worker stopped or died, or had not begun it."),
    "lease_extended": (logging.INFO, "A worker extended its lease."),
    "lease_lost": (logging.WARNING, "A worker lost its lease and abandoned the job."),
    "breaker_open": (logging.ERROR, "The breaker opened; once per opening in the whole cluster."),
    "breaker_closed": (logging.INFO, "The breaker closed; once per opening in the whole cluster."),
    "held": (
        logging.WARNING,
        "This worker claims nothing: a pause, an open breaker, or a disk that is full or not writable.",
    ),
    "db_down": (logging.ERROR, "The database is unreachable, or its schema is missing; once per process and outage."),
    "db_up": (logging.INFO, "The database is back; once per process and outage."),
    "worker_died": (logging.ERROR, "A worker process died or was killed because it was stuck."),
    "grow": (logging.INFO, "The elastic pool has one worker more: all were busy and jobs waited."),
    "shrink": (logging.INFO, "The elastic pool retires workers that were not needed for a minute."),
    "shutdown": (logging.INFO, "The supervisor stops."),
    "metrics_down": (logging.WARNING, "The metrics port could not be opened."),
    "log_file": (logging.WARNING, "`LOG_FILE` cannot be written; on stderr only."),
    "reload": (logging.INFO, "SIGHUP: the supervisor replaces its workers one by one."),
    "replica_down": (
        logging.WARNING,
        "A web process reads from the primary: the replica is away, or more than 5 s behind.",
    ),
    "replica_up": (logging.INFO, "A web process reads from the replica; also at its start."),
    "web": (logging.INFO, "A message of the web server, such as its start."),
    "web_error": (logging.ERROR, "A request failed unexpectedly."),
    "request": (
        logging.INFO,
        "A request that changes something, is a download, or fails; with `DEBUG`, every request.",
    ),
}
LEVELS = {event: level for event, (level, _) in EVENTS.items()}
