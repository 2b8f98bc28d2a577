"""The scan budget: cheap scans are free, expensive ones are rare, and no job is out of reach."""

from __future__ import annotations

import os
from uuid import UUID

import pytest
from convertq.queue.scan_budget import (
    END,
    RECLAIM_AT_LEAST_EVERY_SECONDS,
    RESERVED_SECONDS,
    SCAN_AT_LEAST_EVERY_SECONDS,
    SHARE,
    SHARE_WHEN_KNOWN,
    START,
    Position,
    Scan,
    ScanBudget,
)
from convertq.worker.supervisor.status_table import WorkerStatusTable

NOW = 1000.0
RECENT = "2030-01-01 12:00:00.123456+00"
LATER = "2030-01-01 12:01:00+00"
NO_ID = UUID(int=0)
CLAIMED = Position(-5, 0, RECENT, UUID(int=7))


def scan(start: Position = START, entries: int = 100_000, seconds: float = 0.125, ended: float = NOW) -> Scan:
    return Scan(start, entries, seconds, ended)


def scanned(seconds: float = 0.125, *, entries: int = 100_000, found: Position | None = None) -> ScanBudget:
    """After one scan from the start."""
    budget = ScanBudget()
    if found:
        budget.record_claim(scan(seconds=seconds, entries=entries), found)
    else:
        budget.record_nothing_found(scan(seconds=seconds, entries=entries), RECENT)
    return budget


def test_at_first_and_while_scans_are_cheap_every_claim_starts_at_the_beginning() -> None:
    assert ScanBudget().allows_scan(NOW)
    assert scanned(10, entries=900).allows_scan(NOW)


def test_a_cheap_scan_ends_the_limit() -> None:
    budget = scanned(found=CLAIMED)
    assert budget.is_limited
    budget.record_cheap_scan()
    assert not budget.is_limited
    assert budget.allows_scan(NOW)
    assert budget.position == START


@pytest.mark.parametrize("found", [None, CLAIMED])
def test_after_an_expensive_scan_the_next_one_has_to_wait(found: Position | None) -> None:
    budget = scanned(found=found)
    assert not budget.allows_scan(NOW + SHARE * 0.12)
    assert budget.allows_scan(NOW + SHARE * 0.125)


def test_a_job_that_is_known_to_be_there_is_looked_for_earlier() -> None:
    soon = NOW + SHARE_WHEN_KNOWN * 0.125
    assert not scanned().allows_scan(NOW + SHARE_WHEN_KNOWN * 0.12, known=True)
    assert scanned().allows_scan(soon, known=True)
    budget = scanned()
    assert not budget.allows_scan(soon)
    budget.record_known_job()
    assert budget.allows_scan(soon)


def test_a_scan_that_is_under_way_is_not_begun_by_another_worker() -> None:
    budget, due = scanned(), NOW + SHARE * 0.125
    assert budget.allows_scan(due)
    assert not budget.allows_scan(due, known=True)
    assert not budget.allows_scan(due)
    assert budget.allows_scan(due + RESERVED_SECONDS), "its worker has died"


def test_reclaiming_that_is_under_way_is_not_begun_by_another_worker() -> None:
    budget = ScanBudget()
    assert budget.allows_reclaim(NOW)
    assert not budget.allows_reclaim(NOW)
    assert budget.allows_reclaim(NOW + RESERVED_SECONDS)


def test_a_scan_from_the_start_answers_what_was_known() -> None:
    budget = scanned()
    budget.record_known_job()
    budget.record_nothing_found(scan(ended=NOW + 1), RECENT)
    assert not budget.allows_scan(NOW + 1 + SHARE_WHEN_KNOWN * 0.125)


def test_no_scan_is_put_off_for_longer_than_the_longest_pause() -> None:
    assert scanned(1000).allows_scan(NOW + SCAN_AT_LEAST_EVERY_SECONDS)


def test_hosts_behind_the_first_scan_less_often() -> None:
    budget = ScanBudget()
    budget.set_place(3)
    budget.record_nothing_found(scan(), RECENT)
    assert not budget.allows_scan(NOW + 2.9 * SHARE * 0.125)
    assert budget.allows_scan(NOW + 3 * SHARE * 0.125)


def test_a_claim_starts_at_the_last_claimed_key() -> None:
    assert scanned(found=CLAIMED).position == CLAIMED


def test_after_nothing_was_found_a_claim_starts_at_the_new_jobs_of_the_last_priority() -> None:
    budget = scanned(found=CLAIMED)
    budget.record_nothing_found(scan(), LATER)
    assert budget.position == (-5, 0, LATER, NO_ID)


def test_a_position_with_dead_entries_behind_it_is_left() -> None:
    budget = scanned(found=CLAIMED)
    budget.record_nothing_found(scan(CLAIMED), LATER)
    assert budget.position == (0, 0, LATER, NO_ID), "the new jobs of the default priority"
    budget.record_nothing_found(scan(budget.position), LATER)
    assert budget.position == END


def test_a_position_that_is_cheap_is_kept() -> None:
    budget = scanned(found=CLAIMED)
    budget.record_nothing_found(scan(CLAIMED, entries=9000), LATER)
    assert budget.position == CLAIMED


def test_reclaiming_that_is_slow_is_done_less_often_but_often_enough() -> None:
    budget = ScanBudget()
    assert budget.allows_reclaim(NOW)
    budget.record_reclaim(NOW - 0.125, NOW)
    assert not budget.allows_reclaim(NOW + SHARE * 0.12)
    assert budget.allows_reclaim(NOW + SHARE * 0.125)
    budget.record_reclaim(NOW - 100, NOW)
    assert budget.allows_reclaim(NOW + RECLAIM_AT_LEAST_EVERY_SECONDS)


def test_the_workers_of_a_host_share_it() -> None:
    status_table = WorkerStatusTable(2)
    child = os.fork()
    if child == 0:
        status_table.scans.record_claim(scan(), CLAIMED)
        os._exit(0)
    os.waitpid(child, 0)
    assert not status_table.scans.allows_scan(NOW)
    assert status_table.scans.position == CLAIMED
