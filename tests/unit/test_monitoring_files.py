"""Every metric that a rule or a panel in monitoring/ queries is one that convertq exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from convertq.cli.main import COMMANDS

MONITORING = Path(__file__).parents[2] / "monitoring"
ALERTS = MONITORING / "prometheus-alerts.yml"
#: with their labels; tests/integration/test_metrics.py compares them with what `convertq metrics` prints
METRICS: dict[str, set[str]] = {
    "convertq_jobs": {"status"},
    "convertq_jobs_created_total": set(),
    "convertq_jobs_completed_total": set(),
    "convertq_jobs_failed_total": {"code"},
    "convertq_jobs_cancelled_total": set(),
    "convertq_retries_total": set(),
    "convertq_oldest_queued_seconds": set(),
    "convertq_gateway_duration_seconds_bucket": {"gateway", "le"},
    "convertq_gateway_duration_seconds_sum": {"gateway"},
    "convertq_gateway_duration_seconds_count": {"gateway"},
    "convertq_gateway_calls": {"gateway"},
    "convertq_gateway_max_calls": {"gateway"},
    "convertq_breaker_open": {"gateway"},
    "convertq_breaker_open_seconds_total": {"gateway"},
    "convertq_wanted_workers": set(),
    "convertq_pauses": set(),
    "convertq_estimate_covered_ratio": set(),
    "convertq_servers": {"status"},
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return found


def panel_queries() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def queries() -> list[str]:
    return [rule["expr"] for rule in rules()] + panel_queries()


def is_answered(query: str) -> bool:
    requested = re.findall(r"(convertq_\w+)(?:\{([^}]*)\})?", query)
    return bool(requested) and all(
        name in METRICS and set(re.findall(r"(\w+)\s*[=!]", selector)) <= METRICS[name] for name, selector in requested
    )


def test_every_metric_in_a_query_exists_with_that_label() -> None:
    assert [query for query in queries() if not is_answered(query)] == []


def test_every_metric_is_on_the_dashboard() -> None:
    assert {name for query in panel_queries() for name in re.findall(r"convertq_\w+", query)} == set(METRICS)


def test_the_list_in_the_readme_is_the_list_of_metrics() -> None:
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRICS}
    assert set(re.findall(r"^\| `(convertq_\w+)", (MONITORING / "README.md").read_text(), re.MULTILINE)) == families


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "remedy"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_what_an_operator_must_know_has_an_alert() -> None:
    watched = {
        "oldest_queued_seconds",
        "breaker_open",
        'servers{status="active"}',
        'servers{status="dead"}',
        "failed_total",
    }
    text = " ".join(rule["expr"] for rule in rules())
    assert [name for name in watched if name not in text] == []


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def promtool(*arguments: str) -> str:
    if not (program := shutil.which("promtool")):
        pytest.skip("promtool is not on PATH: apt-get install prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(ALERTS))


def test_promtool_accepts_the_panels_queries(tmp_path: Path) -> None:
    as_rules = [
        {"record": f"panel:query:n{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(panel_queries())
    ]
    written = tmp_path / "rules.yml"
    written.write_text(json.dumps({"groups": [{"name": "panels", "rules": as_rules}]}))
    assert f"{len(as_rules)} rules found" in promtool("check", "rules", str(written))


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        ("ConvertqQueueStuck", {"convertq_oldest_queued_seconds": "1000", "convertq_breaker_open": "0"}),
        ("ConvertqBreakerOpen", {"convertq_breaker_open": "1"}),
        ("ConvertqNoActiveServer", {'convertq_servers{status="active"}': "0"}),
        ("ConvertqServerDied", {'convertq_servers{status="dead"}': "1"}),
        (
            "ConvertqFailureRate",
            {'convertq_jobs_failed_total{code="GW_5XX"}': "0+20", "convertq_jobs_completed_total": "0+80"},
        ),
    ],
)
def test_an_alert_fires_when_it_should(tmp_path: Path, alert: str, series: dict[str, str]) -> None:
    given = [{"series": name, "values": f"{value}x60"} for name, value in series.items()]
    # the annotations hold the value, which is not what is tested here
    without = [{key: value for key, value in rule.items() if key != "annotations"} for rule in rules()]
    (tmp_path / "alerts.yml").write_text(json.dumps({"groups": [{"name": "convertq", "rules": without}]}))
    [severity] = [rule["labels"]["severity"] for rule in rules() if rule["alert"] == alert]
    check = {"alertname": alert, "eval_time": "40m", "exp_alerts": [{"exp_labels": {"severity": severity}}]}
    tests = [{"interval": "1m", "input_series": given, "alert_rule_test": [check]}]
    written = tmp_path / "test.yml"
    written.write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": tests}))
    promtool("test", "rules", str(written))


def test_a_remedy_names_units_and_commands_that_are_there() -> None:
    remedies = " ".join(rule["annotations"]["remedy"] for rule in rules())
    units = {path.stem for path in (MONITORING.parent / "systemd").glob("*.service")}
    assert set(re.findall(r"systemctl \w+ ([\w@-]+)", remedies)) <= units
    assert set(re.findall(r"convertq ([a-z]+)", remedies)) <= set(COMMANDS)
