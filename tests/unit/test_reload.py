"""Who is replaced next: one at a time, idle ones first, and nobody before the last successor is connected."""

from __future__ import annotations

from convertq.worker.supervisor.reload import Reload
from convertq.worker.supervisor.slot import Slot
from convertq.worker.supervisor.status_table import WorkerStatus, WorkerStatusTable


def show(status_table: WorkerStatusTable, slot: int, *, connected: bool = True, busy: bool = False) -> None:
    status_table.write(slot, WorkerStatus(connected, busy, False, 0, 0))


def pool(count: int) -> tuple[WorkerStatusTable, list[Slot], Reload]:
    status_table = WorkerStatusTable(count)
    for number in range(1, count + 1):
        show(status_table, number)
    return status_table, [Slot(number, pid=100 + number) for number in range(1, count + 1)], Reload(status_table)


def test_without_a_reload_nobody_goes() -> None:
    _, slots, reload = pool(2)
    assert reload.choose(slots) is None
    assert reload.remaining == 0


def test_idle_workers_go_before_busy_ones() -> None:
    status_table, slots, reload = pool(3)
    show(status_table, 1, busy=True)
    reload.begin(slots)
    assert reload.choose(slots) is slots[1]


def test_nobody_else_goes_while_one_still_works_not_even_an_idle_one() -> None:
    status_table, slots, reload = pool(2)
    show(status_table, 1, busy=True)
    show(status_table, 2, busy=True)
    reload.begin(slots)
    assert reload.choose(slots) is slots[0]
    show(status_table, 2)
    assert reload.choose(slots) is None
    assert reload.waits_for_exit


def test_nobody_goes_before_the_last_ones_successor_is_connected() -> None:
    status_table, slots, reload = pool(2)
    reload.begin(slots)
    assert reload.choose(slots) is slots[0]
    slots[0].pid = 0
    status_table.clear(1)
    assert reload.choose(slots) is None
    slots[0].pid = 201
    assert reload.choose(slots) is None
    assert not reload.waits_for_exit
    show(status_table, 1)
    assert reload.choose(slots) is slots[1]


def test_a_worker_that_died_meanwhile_is_replaced_already() -> None:
    _, slots, reload = pool(2)
    reload.begin(slots)
    reload.choose(slots)
    slots[1].pid = 202
    reload.choose(slots)
    assert reload.remaining == 1


def test_a_second_reload_replaces_the_new_ones_too() -> None:
    _, slots, reload = pool(2)
    reload.begin(slots)
    reload.choose(slots)
    slots[0].pid = 201
    reload.begin(slots)
    reload.choose(slots)
    assert reload.remaining == 2


def test_a_stop_ends_the_reload() -> None:
    _, slots, reload = pool(2)
    reload.begin(slots)
    reload.cancel()
    assert reload.choose(slots) is None
