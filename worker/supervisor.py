"""The supervisor: one short loop over pids. It forks workers, replaces dead ones, stops them all, and knows no job."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable

from convertq.worker.board import Board
from convertq.worker.child import run_as_child
from convertq.worker.config import Config
from convertq.worker.gateway_client import route_to_gateway
from convertq.worker.log import Log
from convertq.worker.log_file import reopen_log_file
from convertq.worker.loop import Worker
from convertq.worker.metrics_process import MetricsProcess
from convertq.worker.reload import Reload
from convertq.worker.server import Server
from convertq.worker.signals import Signals, blocked, has_terminal
from convertq.worker.slot import Slot
from convertq.worker.stopping import RETIRE
from convertq.worker.systemd import Systemd
from convertq.worker.wake import Wake

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
TICK = 1.0  # s between rounds when nothing happens
STARTING_TICK = 0.02  # s
KILL_AFTER = 10.0  # s beyond the grace: a worker gives its job back by itself; this is for one that cannot
END_AFTER = 50.0  # s beyond that: to say goodbye to a database that may not answer
QUICK_DEATH = 10.0  # s: one that dies sooner, again and again, is replaced with backoff
BACKOFF_MAX = 30.0  # s


class Supervisor:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._board, self._wake = Board(config.worker_concurrency), Wake()
        self._route = route_to_gateway(config)
        self._log, self._systemd = Log(config), Systemd()
        self._server = Server(config, self._board, self._wake, self._log, self._systemd.is_alive)
        self._slots = [Slot(number) for number in range(1, config.worker_concurrency + 1)]
        self._metrics = MetricsProcess(config, self._board, self._fork)
        self._reload = Reload(self._board)
        self._ends_with_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # nohup
        self._is_ready = False
        self._stop_by: float | None = None
        self._jobs_of_the_gone = 0

    def run(self) -> int:
        gc.collect()
        gc.disable()
        gc.freeze()  # what is there now is shared with every worker, and no collection of theirs writes to it
        self._signals = Signals(HANDLED)
        while not self._is_done():
            self._server.keep_up()
            self._metrics.keep_up()
            self._fill()
            self._tell()
            self._wait()
            self._reap()
            self._end_stuck()
            self._replace_next()
        self._metrics.end()
        self._server.stop()
        self._log("shutdown", reason="all workers have ended")
        return 0

    def _is_done(self) -> bool:
        return self._stop_by is not None and not any(slot.pid for slot in self._slots)

    # -- wait, and act on what came --

    def _wait(self) -> None:
        arrived, ready = self._signals.wait(self._time_to_next(), *self._server.descriptors)
        for number in arrived:
            self._act_on(number)
        if ready:
            self._server.hear()

    def _act_on(self, number: signal.Signals) -> None:
        if number is signal.SIGCHLD:
            return  # _reap looks
        if number is signal.SIGHUP and (has_terminal() or not self._ends_with_terminal):
            self._replace_all()
        else:  # a SIGHUP too, when it says that the terminal was closed
            self._stop(number)

    def _time_to_next(self) -> float:
        """Workers say on the board, not by a signal, that they are connected: at the start it is read more often."""
        waiting = [slot.start_at for slot in self._slots if not slot.pid] if self._stop_by is None else []
        tick = TICK if self._is_ready or self._reload.waits_for_an_end or self._stop_by else STARTING_TICK
        return max(STARTING_TICK, min([tick, *(at - time.monotonic() for at in waiting)]))

    def _stop(self, number: signal.Signals) -> None:
        """The first signal lets workers finish within the grace; the second gives their jobs back at once."""
        first = self._stop_by is None
        grace = self._config.worker_shutdown_grace_sec if first else 0
        self._stop_by = time.monotonic() + grace + KILL_AFTER
        self._reload.give_up()
        self._systemd.stops(within=grace + KILL_AFTER + END_AFTER)
        self._log("shutdown", reason=number.name, grace_sec=grace)
        for slot in self._slots:
            self._send(slot, signal.SIGTERM if first else signal.SIGQUIT)
        if first:
            self._server.drain()

    def _replace_all(self) -> None:
        """SIGHUP: new workers, one by one, and LOG_FILE opened anew. Settings and code are those of this process."""
        if self._stop_by is not None:
            return
        reopen_log_file()
        self._log("reload", reason="SIGHUP", workers=len(self._slots))
        if self._is_ready or self._reload.left:  # else they are all new
            self._is_ready = False
            self._reload.begin(self._slots)
            self._systemd.reloads()

    def _replace_next(self) -> None:
        if slot := self._reload.choose(self._slots):
            self._send(slot, RETIRE)

    @staticmethod
    def _send(slot: Slot, number: signal.Signals) -> None:
        if slot.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(slot.pid, number)

    # -- every death takes one path: reap, give its job back, start another --

    def _reap(self) -> None:
        for slot in self._slots:
            if not slot.pid:
                continue
            pid, status = os.waitpid(slot.pid, os.WNOHANG)
            if pid:
                self._bury(slot, os.waitstatus_to_exitcode(status))

    def _bury(self, slot: Slot, exit_code: int) -> None:
        lived = time.monotonic() - slot.started
        self._jobs_of_the_gone += self._board.read(slot.number).jobs
        self._board.clear(slot.number)
        if exit_code != 0:
            how = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
            worker = f"{self._board.server_id}/{slot.number}"
            self._log("worker_died", worker=worker, pid=slot.pid, reason=slot.killed or how)
            self._server.give_back(slot.number, counted=slot.killed != "shutdown", reason=slot.killed or "worker died")
        slot.quick_deaths = slot.quick_deaths + 1 if exit_code != 0 and lived < QUICK_DEATH else 0
        backoff = min(BACKOFF_MAX, 2.0 ** (slot.quick_deaths - 3)) if slot.quick_deaths > 2 else 0.0
        slot.pid, slot.killed, slot.start_at = 0, "", time.monotonic() + backoff

    def _end_stuck(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            deadline = self._board.read(slot.number).deadline
            if slot.pid and not slot.killed and 0 < deadline < now:
                self._kill(slot, "stuck beyond the gateway timeout")
            elif slot.pid and self._stop_by is not None and self._stop_by < now:
                self._kill(slot, "shutdown")

    def _kill(self, slot: Slot, reason: str) -> None:
        slot.killed = reason
        self._send(slot, signal.SIGKILL)

    # -- start --

    def _fill(self) -> None:
        if self._stop_by is not None or not self._server.is_registered:
            return  # before the server is registered its workers could claim nothing
        for slot in self._slots:
            if not slot.pid and slot.start_at <= time.monotonic():
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        slot.pid = self._fork(lambda: Worker(self._config, slot.number, self._board, self._wake, self._route).run())
        slot.started = time.monotonic()

    def _fork(self, work: Callable[[], None]) -> int:
        parent = os.getpid()
        with blocked(HANDLED) as mask:
            pid = os.fork()
            if pid == 0:
                run_as_child(parent, lambda: self._become(work), mask)
        return pid

    def _become(self, work: Callable[[], None]) -> None:
        """In the child: first the parent's pipe and connection are let go of."""
        self._signals.close()
        self._server.leave_behind()
        work()

    # -- tell --

    def _tell(self) -> None:
        rows = [self._board.read(slot.number) for slot in self._slots]
        connected, busy = sum(row.connected for row in rows), sum(row.busy for row in rows)
        done = self._jobs_of_the_gone + sum(row.jobs for row in rows)
        if self._stop_by is None and not self._is_ready and connected == len(rows) and not self._reload.left:
            self._is_ready = True
            self._log("ready", workers=len(rows))
            self._systemd.is_ready()
        words = [
            f"{len(rows)} worker{'' if len(rows) == 1 else 's'}",
            f"{busy} busy",
            f"{done} done",
            self._server.state,
        ]
        if held := sum(row.held for row in rows):
            words.append(f"{held} held by the disk (convertq doctor says why)")
        if self._stop_by is not None:
            words.append("stopping")
        elif self._reload.left:
            words.append(f"reloading, {self._reload.left} to replace")
        self._systemd.shows(", ".join(words))
