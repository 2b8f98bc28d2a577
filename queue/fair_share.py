"""How owners share the workers: their turns within a priority, and the limit of their running jobs.

A job gets its turn from the table's trigger when it becomes claimable, so a claim needs to know nothing of owners. A
supervisor does the rest here: it gives new turns to jobs that were queued before the setting changed, moves the virtual
time on, and keeps all but a few jobs of an owner who is at the limit out of the claim's index.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.pauses import WOKEN_HOSTS
from convertq.queue.scan_budget import ScanBudget

#: So many jobs of an owner at the limit stay claimable, of each priority and gateway: every claim reads them, and a
#: supervisor refills them about once a second.
WINDOW_JOBS = 500
#: So many more do not have to be moved yet.
SLACK_JOBS = 250
#: How often priorities that are new are looked for. A job of one that is not known yet gets its turn all the same.
FIND_NEW_EVERY_SECONDS = 30.0
#: The turns that are out of date, with fair share, with a limit alone, and with neither (0014_fair_share.sql).
FIRST, LAST = -(2**63), 2**63 - 1
STALE_WITH_FAIR_SHARE = ((-1, LAST),)
STALE_WITH_LIMIT = ((FIRST, -2), (0, LAST))
STALE_WITHOUT = ((FIRST, -1), (1, LAST))


def set_fair_share(database: Database, config: Config) -> None:
    """For the whole cluster, at the start of a supervisor."""
    database.run("set_fair_share", takes_turns=config.fair_share, owner_max_running=config.owner_max_running)


class FairShare:
    """What a supervisor does for it, again and again. It remembers when it has looked for new priorities."""

    def __init__(self, scans: Mapping[str, ScanBudget] | None = None) -> None:
        self._scans = scans or {}
        self._find_new_at = 0.0

    def keep_up(self, database: Database, seconds: float) -> bool:
        """Whether it has to be called again soon: turns are taken, or jobs are to be moved."""
        share = database.run("get_fair_share")[0]
        ends = time.monotonic() + seconds
        if not share["jobs_follow"]:
            renew_turns(database, _stale_turns(share), ends)
        if share["takes_turns"]:
            self._advance_turns(database)
        if share["has_over_cap"]:
            release_owners(database, ends)
        if share["owner_max_running"]:
            limit_owners(database, ends)
        is_off = not share["takes_turns"] and not share["owner_max_running"]
        return not (is_off and share["jobs_follow"] and not share["has_over_cap"])

    def _advance_turns(self, database: Database) -> None:
        finds_new = time.monotonic() >= self._find_new_at
        if finds_new:
            self._find_new_at = time.monotonic() + FIND_NEW_EVERY_SECONDS
        positions = [
            {"route": route, "priority": last.priority, "turn": last.turn}
            for route, scans in self._scans.items()
            if (last := scans.last_turn) is not None
        ]
        database.run("advance_turns", finds_new=finds_new, positions=json.dumps(positions))


def renew_turns(database: Database, stale: tuple[tuple[int, int], ...], ends: float) -> None:
    """Gives new turns to claimable jobs until the time is up. Jobs of a transaction that began before the change may
    appear later: only a pass that began after the end of all these, and found nothing, is the last one."""
    oldest, found = "", 0
    for first, last in stale:
        row = database.run("renew_turns", first=first, last=last)[0]
        oldest = oldest or row["oldest"]
        found += row["found"]
        while row["renewed"]:
            if time.monotonic() > ends:
                return
            row = database.run("renew_turns", first=first, last=last)[0]
    if not found:
        database.run("finish_renewing", oldest=oldest)


def limit_owners(database: Database, ends: float) -> None:
    while database.run("limit_owners", window=WINDOW_JOBS, slack=SLACK_JOBS)[0]["moved"]:
        if time.monotonic() > ends:
            return


def release_owners(database: Database, ends: float) -> None:
    moved = 0
    while released := database.run("release_owners", window=WINDOW_JOBS)[0]["moved"]:
        moved += released
        if time.monotonic() > ends:
            break
    if moved:
        database.run("wake_servers", at_most=WOKEN_HOSTS)


def _stale_turns(share: Mapping[str, object]) -> tuple[tuple[int, int], ...]:
    if share["takes_turns"]:
        return STALE_WITH_FAIR_SHARE
    return STALE_WITH_LIMIT if share["owner_max_running"] else STALE_WITHOUT
