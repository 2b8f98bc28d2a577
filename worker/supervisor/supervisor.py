"""The supervisor: one short loop over pids. It forks workers, replaces dead ones, stops them all, and knows no job."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable

from convertq.queue.config import Config
from convertq.queue.log.lines import Log
from convertq.queue.log.shared_file import reopen_log_file
from convertq.queue.signals import Signals, blocked, has_terminal
from convertq.worker.gateway.route import routes_to_gateways
from convertq.worker.loop.stopping import RETIRE
from convertq.worker.loop.worker import Worker
from convertq.worker.supervisor.child import run_as_child
from convertq.worker.supervisor.database_tasks import DatabaseTasks
from convertq.worker.supervisor.elasticity import PoolElasticity
from convertq.worker.supervisor.metrics_process import MetricsProcess
from convertq.worker.supervisor.reload import Reload
from convertq.worker.supervisor.status_table import WorkerStatusTable
from convertq.worker.supervisor.systemd import Systemd
from convertq.worker.supervisor.wake_up import WakeUp
from convertq.worker.supervisor.worker_pool import WorkerPool, send_signal

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
LOOP_INTERVAL_SECONDS = 1.0  # when nothing happens
STARTING_LOOP_INTERVAL_SECONDS = 0.02
KILL_AFTER_GRACE_SECONDS = 10.0  # a worker requeues its job by itself; this is for one that cannot
SIGN_OFF_SECONDS = 50.0  # after the last worker, to sign off from a database that may not answer


class Supervisor:
    def __init__(self, config: Config) -> None:
        self._config = config
        adaptive = [gateway.name for gateway in config.gateways if gateway.is_adaptive]
        self._status_table = WorkerStatusTable(config.worker_concurrency.most, config.gateway_names, adaptive)
        self._wake = WakeUp()
        self._routes = routes_to_gateways(config)
        self._log, self._systemd = Log(config), Systemd()
        self._database = DatabaseTasks(config, self._status_table, self._wake, self._log, self._notify_alive)
        self._pool = WorkerPool(
            config, self._status_table, self._log, self._database.requeue_jobs_of, self._database.release_slots_of
        )
        self._elasticity = PoolElasticity(
            config.worker_concurrency, self._pool, self._database.has_claimable_job, self._log
        )
        self._metrics = MetricsProcess(config, self._status_table, self._fork)
        self._reload = Reload(self._status_table)
        self._ends_with_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # nohup
        self._is_ready = False
        self._stop_by: float | None = None

    def run(self) -> int:
        gc.collect()
        gc.disable()
        gc.freeze()  # What exists now is shared with every worker, and no garbage collection of theirs writes to it.
        self._signals = Signals(HANDLED)
        while not (self._is_stopping and self._pool.is_empty):
            self._database.keep_up()
            self._metrics.keep_up()
            self._resize_pool()
            self._fill_pool()
            self._report_status()
            self._wait()
            self._pool.reap()
            self._pool.kill_overdue(self._stop_by)
            self._replace_next()
        self._metrics.end()
        self._database.stop()
        self._log("shutdown", reason="all workers have ended")
        return 0

    @property
    def _is_stopping(self) -> bool:
        return self._stop_by is not None

    # -- wait, and act on signals --

    def _wait(self) -> None:
        arrived, ready = self._signals.wait(self._wait_seconds(), *self._database.descriptors)
        for number in arrived:
            self._handle_signal(number)
        if ready:
            self._database.read_notifications()

    def _handle_signal(self, number: signal.Signals) -> None:
        if number is signal.SIGCHLD:
            return  # It has ended the wait, and the pool reaps next.
        if number is signal.SIGHUP and (has_terminal() or not self._ends_with_terminal):
            self._replace_all()
        else:  # also a SIGHUP that means that the terminal was closed
            self._stop(number)

    def _wait_seconds(self) -> float:
        """Workers report in the status table, not by a signal, that they are connected: at the start it is polled."""
        is_quiet = self._is_ready or self._reload.waits_for_exit or self._is_stopping
        interval = LOOP_INTERVAL_SECONDS if is_quiet else STARTING_LOOP_INTERVAL_SECONDS
        next_start_at = float("inf") if self._is_stopping else self._pool.next_start_at
        next_growth_at = self._elasticity.next_at if self._may_resize else float("inf")
        next_at = min(self._database.next_at, next_start_at, next_growth_at)
        return max(STARTING_LOOP_INTERVAL_SECONDS, min(interval, next_at - time.monotonic()))

    def _stop(self, number: signal.Signals) -> None:
        """The first signal lets workers finish within the grace; the second requeues their jobs at once."""
        is_first = not self._is_stopping
        grace = self._config.worker_shutdown_grace_sec if is_first else 0
        self._stop_by = time.monotonic() + grace + KILL_AFTER_GRACE_SECONDS
        self._reload.cancel()
        self._systemd.notify_stopping(within_seconds=grace + KILL_AFTER_GRACE_SECONDS + SIGN_OFF_SECONDS)
        self._log("shutdown", reason=number.name, grace_sec=grace)
        for slot in self._pool.slots:
            send_signal(slot, signal.SIGTERM if is_first else signal.SIGQUIT)
        if is_first:
            self._database.drain()

    def _replace_all(self) -> None:
        """On SIGHUP: replaces workers one by one and reopens LOG_FILE. Settings and code stay those of this process."""
        if self._is_stopping:
            return
        reopen_log_file()
        self._log("reload", reason="SIGHUP", workers=len(self._pool.slots))
        if self._is_ready or self._reload.remaining:  # otherwise all workers are new
            self._is_ready = False
            self._reload.begin(self._pool.slots)
            self._systemd.notify_reloading()

    def _replace_next(self) -> None:
        if slot := self._reload.choose(self._pool.slots):
            send_signal(slot, RETIRE)

    # -- start workers --

    @property
    def _may_resize(self) -> bool:
        """During a reload the pool stays as it is: each worker that ends has a successor."""
        return self._is_ready and not self._is_stopping

    def _resize_pool(self) -> None:
        if self._may_resize:
            self._elasticity.keep_up()
        self._database.show_pool_size(self._pool.size)

    def _fill_pool(self) -> None:
        """Before the server is registered, its workers could claim nothing."""
        if not self._is_stopping and self._database.is_registered:
            self._pool.fill(self._start_worker)

    def _start_worker(self, slot: int) -> int:
        return self._fork(lambda: Worker(self._config, slot, self._status_table, self._wake, self._routes).run())

    def _fork(self, work: Callable[[], None]) -> int:
        parent = os.getpid()
        with blocked(HANDLED) as mask:
            pid = os.fork()
            if pid == 0:
                run_as_child(parent, lambda: self._run_in_child(work), mask)
        return pid

    def _run_in_child(self, work: Callable[[], None]) -> None:
        """The child closes the parent's signal pipe and connection first."""
        self._signals.close()
        self._database.detach_connection()
        work()

    # -- report --

    def _notify_alive(self) -> None:
        self._status_table.alive_at = time.monotonic()
        self._systemd.notify_alive()

    def _report_status(self) -> None:
        self._status_table.alive_at = time.monotonic()
        statuses = self._pool.statuses
        connected = sum(status.connected for status in statuses)
        if not (self._is_stopping or self._is_ready or self._reload.remaining) and connected == len(statuses):
            self._is_ready = True
            self._log("ready", workers=len(statuses))
            self._systemd.notify_ready()
        done = self._pool.jobs_of_ended_workers + sum(status.jobs for status in statuses)
        words = [
            f"{len(statuses)} worker{'' if len(statuses) == 1 else 's'}",
            f"{sum(status.busy for status in statuses)} busy",
            f"{done} done",
            self._database.state,
        ]
        if held := sum(status.held for status in statuses):
            words.append(f"{held} held by the disk (convertq doctor says why)")
        if self._is_stopping:
            words.append("stopping")
        elif self._reload.remaining:
            words.append(f"reloading, {self._reload.remaining} to replace")
        self._systemd.notify_status(", ".join(words))
