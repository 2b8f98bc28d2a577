"""deploy/: the image, the compose file and the manifests agree with each other and with what the code offers."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from convertq.queue.config import read_config
from convertq.queue.settings import SETTINGS

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OWN = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "convertq"}
USER = 10001
VARIABLES = {setting.variable for setting in SETTINGS} | {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
STOP_SECONDS = 60 + 10 + 50  # grace, requeue, and to sign off from a database that may not answer


def resources() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text())


def resource(kind: str, name: str) -> dict[str, Any]:
    [found] = [each for each in resources() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pods() -> dict[str, dict[str, Any]]:
    """The pod specification of each workload, by the name of its only container."""
    found = {}
    for each in resources():
        spec = each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each.get("spec", {})
        if "template" in spec:
            pod = spec["template"]["spec"]
            found[pod["containers"][0]["name"]] = pod
    return found


# -- compose.yaml --


def test_every_service_of_the_image_has_a_read_only_file_system_and_no_rights() -> None:
    assert set(OWN) == {"gateway", "migrate", "worker", "web"}
    for service in OWN.values():
        assert (service["read_only"], service["cap_drop"], service["tmpfs"]) == (True, ["ALL"], ["/tmp"])


def test_the_environment_of_each_service_is_a_configuration_that_is_accepted() -> None:
    for name, service in OWN.items():
        if environment := {key: str(value) for key, value in service.get("environment", {}).items()}:
            assert set(environment) <= VARIABLES
            environment.pop("ADMIN_TOKEN", None)
            config = read_config(environment, needs_gateway=name == "worker")
            assert config.database.schema == "public"


def test_what_the_services_name_is_what_the_others_offer() -> None:
    services, settings = COMPOSE["services"], OWN["worker"]["environment"]
    database = services["postgres"]["environment"]
    assert (
        f"postgres:{database['POSTGRES_PASSWORD']}@postgres:5432/{database['POSTGRES_DB']}?" in settings["DATABASE_URL"]
    )
    assert f"-bucket={settings['STORAGE_URL'].removeprefix('s3://')}" in services["storage"]["command"]
    assert services["storage"]["environment"].items() <= settings.items()
    assert settings["GATEWAY_URL"] == f"http://gateway:{OWN['gateway']['command'][-1]}"
    assert int(OWN["worker"]["stop_grace_period"].rstrip("s")) > STOP_SECONDS


# -- the image --


def test_the_image_runs_one_command_without_root_and_without_a_shell() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith(("USER", "ENTRYPOINT", "CMD", "STOPSIGNAL"))] == [
        f"USER {USER}:{USER}", "STOPSIGNAL SIGTERM", 'ENTRYPOINT ["convertq"]', 'CMD ["worker", "run"]',
    ]  # fmt: skip
    assert [line for line in lines if line.startswith("FROM")] == ["FROM ${BASE} AS build", "FROM ${BASE}"]


# -- kubernetes/ --


def test_every_manifest_is_listed_once() -> None:
    listed = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == [path.name for path in MANIFESTS]


def test_every_pod_is_restricted_and_every_variable_known() -> None:
    assert set(pods()) == {"migrate", "worker", "web", "cleanup"}
    for pod in pods().values():
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == USER
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {variable["name"] for variable in container.get("env", [])} <= VARIABLES
        assert not pod["automountServiceAccountToken"]
    assert resource("ConfigMap", "convertq")["data"].keys() <= VARIABLES


def test_probes_ask_what_is_served_and_the_grace_suffices() -> None:
    for name in ("worker", "web"):
        [container] = pods()[name]["containers"]
        paths = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
        assert paths == ["/health", "/ready"]
    assert pods()["worker"]["terminationGracePeriodSeconds"] > STOP_SECONDS


def test_disruption_budgets_and_the_service_select_pods_that_exist() -> None:
    for name in ("worker", "web"):
        labels = resource("Deployment", f"convertq-{name}")["spec"]["template"]["metadata"]["labels"]
        assert resource("PodDisruptionBudget", f"convertq-{name}")["spec"]["selector"]["matchLabels"] == labels
    assert resource("Service", "convertq-web")["spec"]["selector"] == labels


def test_the_autoscaler_asks_the_web_and_divides_by_the_largest_pool_of_a_pod() -> None:
    scaled = resource("ScaledObject", "convertq-worker")["spec"]
    [trigger] = scaled["triggers"]
    [container] = pods()["worker"]["containers"]
    [pool] = [variable["value"] for variable in container["env"] if variable["name"] == "WORKER_CONCURRENCY"]
    assert scaled["scaleTargetRef"]["name"] == "convertq-worker"
    assert (trigger["metadata"]["url"], trigger["metadata"]["valueLocation"]) == (
        "http://convertq-web:8000/api/admin/scale", "wanted_workers",
    )  # fmt: skip
    assert trigger["metadata"]["targetValue"] == pool.split("..")[1]
    assert trigger["authenticationRef"]["name"] == resource("TriggerAuthentication", "convertq")["metadata"]["name"]
    assert "replicas" not in resource("Deployment", "convertq-worker")["spec"]


# -- validators, where there are any --


def validate(variable: str, *arguments: str) -> None:
    program = os.environ.get(variable)
    if not program:
        pytest.skip(f"{variable} names no program")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_follows_its_schema() -> None:
    validate("CHECK_JSONSCHEMA", "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml"))


def test_the_containerfile_passes_its_linter() -> None:
    validate("HADOLINT", str(DEPLOY / "Containerfile"))


@pytest.mark.parametrize(
    "path", [path for path in MANIFESTS if path.name != "scaling.yaml"], ids=lambda path: path.name
)
def test_a_manifest_follows_the_schema_of_kubernetes(path: Path) -> None:
    validate("KUBERNETES_VALIDATE", "--strict", str(path))


def test_no_manifest_holds_a_secret() -> None:
    text = "".join(path.read_text() for path in MANIFESTS)
    assert not re.search(r"postgresql://|kind: Secret", text)
