"""What workers and supervisor share: the status table's rows, and one wake-up for one worker."""

from __future__ import annotations

import os
import select
import time
from uuid import uuid4

import pytest
from convertq.worker.loop.cancel_notices import CancelNotices
from convertq.worker.loop.worker_slot import WorkerSlot
from convertq.worker.supervisor.status_table import WorkerStatus, WorkerStatusTable
from convertq.worker.supervisor.wake_up import WakeUp

EMPTY = WorkerStatus(connected=False, busy=False, held=False, deadline=0, jobs=0)
ROW = WorkerStatus(connected=True, busy=True, held=True, deadline=time.monotonic() + 0.123456, jobs=2**40)


def in_a_child(step: object) -> None:
    """Runs it in a forked process, as a worker would, and waits for its end."""
    assert callable(step)
    pid = os.fork()
    if pid == 0:
        try:
            step()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_new_board_is_empty() -> None:
    assert [WorkerStatusTable(2).read(slot) for slot in (1, 2)] == [EMPTY, EMPTY]


def test_a_row_is_read_as_it_was_written_and_its_neighbours_stay() -> None:
    status_table = WorkerStatusTable(3)
    status_table.write(2, ROW)
    assert [status_table.read(slot) for slot in (1, 2, 3)] == [EMPTY, ROW, EMPTY]
    status_table.clear(2)
    assert status_table.read(2) == EMPTY


def test_the_jobs_that_a_worker_begins_are_added_one_by_one() -> None:
    slots = [WorkerSlot(status_table, number) for status_table in [WorkerStatusTable(2)] for number in (1, 2)]
    ids = [uuid4() for _ in range(8)]
    for place, job_id in enumerate(ids):
        slots[0].add_begun(job_id, place)
    assert (slots[0].begun, slots[1].begun) == (ids, [])
    slots[0].begun = ids[-1:]
    slots[0].add_begun(ids[0], 1)
    assert slots[0].begun == [ids[-1], ids[0]]
    slots[0].add_begun(ids[1], 0)
    assert slots[0].begun == [ids[1]], "those that were settled are no longer there"


def test_the_last_slot_has_room() -> None:
    status_table = WorkerStatusTable(1000)
    status_table.write(1000, ROW)
    assert status_table.read(1000) == ROW


def test_the_supervisor_sees_what_a_forked_worker_writes() -> None:
    status_table = WorkerStatusTable(1)
    in_a_child(lambda: status_table.write(1, ROW))
    assert status_table.read(1) == ROW


def test_a_host_has_an_idle_worker_while_one_says_so() -> None:
    status_table = WorkerStatusTable(2)
    assert not status_table.has_idle_worker
    in_a_child(lambda: status_table.write(2, ROW._replace(busy=False, idle=True)))
    assert status_table.has_idle_worker
    status_table.clear(2)
    assert not status_table.has_idle_worker


def test_a_worker_that_is_neither_busy_nor_idle_may_be_about_to_claim() -> None:
    status_table = WorkerStatusTable(1)
    assert not status_table.has_claiming_worker
    for row, is_claiming in ((ROW, False), (EMPTY._replace(connected=True), True)):
        status_table.write(1, row)
        assert status_table.has_claiming_worker is is_claiming
    status_table.write(1, EMPTY._replace(connected=True, idle=True))
    assert not status_table.has_claiming_worker


def test_a_wake_up_is_given_until_it_is_taken() -> None:
    wake = WakeUp()
    assert not wake.is_posted
    wake.post()
    assert wake.is_posted
    wake.take()
    assert not wake.is_posted


def test_a_worker_sees_whether_its_supervisor_waits() -> None:
    status_table = WorkerStatusTable(1)
    assert not status_table.is_waiting
    in_a_child(lambda: setattr(status_table, "is_waiting", True))
    assert status_table.is_waiting


def test_a_request_for_other_hosts_gets_attention_once() -> None:
    status_table = WorkerStatusTable(1)
    assert not status_table.are_other_hosts_requested
    in_a_child(status_table.request_other_hosts)
    assert status_table.are_other_hosts_requested
    assert status_table.supervisor_wake_up.take()
    in_a_child(status_table.request_other_hosts)
    assert not status_table.supervisor_wake_up.take()


def test_a_worker_sees_the_servers_new_name() -> None:
    status_table = WorkerStatusTable(1)
    status_table.server_id = "a-rather-long-host-name:1:aaaa"
    status_table.server_id = "ü:1:bbbb"
    assert status_table.server_id == "ü:1:bbbb"
    in_a_child(lambda: setattr(status_table, "server_id", "seen " + status_table.server_id))
    assert status_table.server_id == "seen ü:1:bbbb"


def test_the_longest_host_name_does_not_reach_into_the_rows() -> None:
    status_table = WorkerStatusTable(1)
    status_table.write(1, ROW)
    status_table.server_id = "h" * 100 + ":4194304:abcdef01"
    assert status_table.read(1) == ROW


def test_a_name_that_has_no_room_is_refused() -> None:
    with pytest.raises((ValueError, IndexError)):
        WorkerStatusTable(1).server_id = "h" * 513


def test_a_wake_up_is_taken_once() -> None:
    wake = WakeUp()
    assert not wake.take()
    wake.post()
    assert wake.take()
    assert not wake.take()


def test_many_wake_ups_while_nobody_waits_are_one() -> None:
    wake = WakeUp()
    for _ in range(5):
        wake.post()
    assert wake.take()
    assert not wake.take()


def test_a_wake_up_given_in_another_process_is_seen_by_the_process_that_waits() -> None:
    wake = WakeUp()
    in_a_child(wake.post)
    assert select.select([wake.descriptor], [], [], 5)[0]
    in_a_child(wake.take)
    assert not wake.take()


def test_a_notice_of_a_cancel_reaches_the_worker_that_is_named_and_no_other() -> None:
    table = WorkerStatusTable(2)
    table.server_id = "host:1:aaaa"
    notices = [CancelNotices(WorkerSlot(table, number)) for number in (1, 2)]
    table.write(2, ROW)
    for nobody in ("host:1:bbbb/2", "host:1:aaaa/3", "host:1:aaaa/0", "host:1:aaaa/-1", "host:1:aaaa/²", "x", ""):
        table.count_cancel(nobody)
    assert [each.take_for_attempt() for each in notices] == [False, False]
    table.count_cancel("host:1:aaaa/2")
    assert table.read(2) == ROW
    assert [each.take_for_ahead() for each in notices] == [False, True]
    assert [each.take_for_ahead() for each in notices] == [False, False]
    assert [each.take_for_attempt() for each in notices] == [False, True], "it may be the job that has begun since"
    in_a_child(table.count_possible_cancels)
    assert [each.take_for_attempt() for each in notices] == [True, True]
