"""The order in which test files start: the longest first, and those that wait beside those that compute.

pytest-xdist would start files with many tests first. The last ones would then be those with few long tests, which wait
for outages and timeouts while the processors are idle.
"""

from __future__ import annotations

from itertools import zip_longest

import pytest

WAITING = (
    "lifecycle/test_waking_up.py", "lifecycle/test_database_trouble.py", "integration/test_web_database.py",
    "lifecycle/test_long_outage.py", "lifecycle/test_watchdog.py", "lifecycle/test_reload.py",
    "lifecycle/test_stopping.py", "lifecycle/test_failed_statements.py", "lifecycle/test_gateway_errors.py",
    "lifecycle/test_workers_die.py", "lifecycle/test_breaker.py", "lifecycle/test_rolling_upgrade.py",
    "lifecycle/test_paused.py", "lifecycle/test_outage_under_load.py", "lifecycle/test_wrong_clocks.py",
    "lifecycle/test_lost_claims.py", "lifecycle/test_progress.py", "lifecycle/test_limits.py",
    "lifecycle/test_routes.py", "lifecycle/test_up.py", "integration/test_replica.py",
    "lifecycle/test_secured_connection.py",
)  # fmt: skip
COMPUTING = (
    "integration/test_demo.py", "integration/test_roles.py", "integration/test_cli_commands.py",
    "integration/test_web_server.py", "integration/test_claim_position.py", "integration/test_cli_top.py",
    "integration/test_infinite_times.py", "integration/test_model.py", "integration/test_cli_cleanup.py",
    "integration/test_web_upload.py", "integration/test_plans.py", "integration/test_web_ownership.py",
    "integration/test_doctor_server.py", "integration/test_web_status.py", "integration/test_reference_gateway.py",
    "integration/test_metrics.py", "integration/test_text_screens.py", "integration/test_counters.py",
)  # fmt: skip
LONGEST = [name for pair in zip_longest(WAITING, COMPUTING) for name in pair if name]


def start_longest_first(items: list[pytest.Item]) -> None:
    """All others keep their order: files of one folder after another."""
    ranks = {f"tests/{name}": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))
