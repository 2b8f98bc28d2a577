"""The served contract, the routes and the code's lists and limits are the same."""

from __future__ import annotations

import re
from typing import Any

from convertq.queue.errors import Code
from convertq.queue.history import MOST_MINUTES
from convertq.queue.status import JobStatus
from convertq.web.app import create_app
from convertq.web.bulk_request import MAX_IDS
from convertq.web.http_error import HttpCode
from convertq.web.openapi import openapi_document, read_openapi
from convertq.web.request_parameters import MAX_LIMIT
from convertq.web.upload import PRIORITY
from convertq.web.web_log import make_log
from openapi_spec_validator import OpenAPIV31SpecValidator
from werkzeug.routing import Rule

from tests.jobs import config

PAGES = ("pages", "static")  # for people, not part of the API
CONVERTED = {"any(open, close):action": "action", "uuid:job_id": "job_id"}
CONTRACT = read_openapi()
OPERATIONS = {
    (method.upper(), path): route for path, methods in CONTRACT["paths"].items() for method, route in methods.items()
}
COMPONENTS = CONTRACT["components"]
SCHEMAS = COMPONENTS["schemas"]


def routes() -> set[tuple[str, str]]:
    settings = config()
    app = create_app(settings, make_log(settings))
    rules = [rule for rule in app.url_map.iter_rules() if rule.endpoint.partition(".")[0] not in PAGES]
    return {(method, path_of(rule)) for rule in rules for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}


def path_of(rule: Rule) -> str:
    return re.sub(r"<([^>]+)>", lambda found: f"{{{CONVERTED[found[1]]}}}", rule.rule)


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """What a `$ref` refers to."""
    found = CONTRACT
    for name in node.get("$ref", "#")[2:].split("/"):
        found = found[name] if name else found
    return found if "$ref" in node else node


def parameter_names(method: str, path: str) -> set[str]:
    return {resolved(parameter)["name"] for parameter in OPERATIONS[method, path]["parameters"]}


def test_the_contract_is_a_valid_openapi_3_1_document() -> None:
    assert list(OpenAPIV31SpecValidator(CONTRACT).iter_errors()) == []
    assert list(OpenAPIV31SpecValidator(openapi_document(config())).iter_errors()) == []


def test_every_route_is_in_the_contract() -> None:
    assert routes() - OPERATIONS.keys() == set()


def test_the_contract_promises_no_route_that_is_not_there() -> None:
    assert OPERATIONS.keys() - routes() == set()


def test_the_contract_lists_the_codes_and_states_of_the_code() -> None:
    assert SCHEMAS["JobStatus"]["enum"] == list(JobStatus) == SCHEMAS["Stats"]["properties"]["jobs"]["required"]
    assert SCHEMAS["JobCode"]["enum"] == list(Code)
    assert SCHEMAS["RequestCode"]["enum"] == list(HttpCode)


def test_the_contract_has_the_limits_of_the_code() -> None:
    [minutes] = OPERATIONS["GET", "/api/admin/history"]["parameters"]
    assert minutes["schema"]["anyOf"][0]["maximum"] == MOST_MINUTES
    assert COMPONENTS["parameters"]["Limit"]["schema"]["anyOf"][0]["maximum"] == MAX_LIMIT
    assert SCHEMAS["Retries"]["anyOf"][0]["properties"]["ids"]["maxItems"] == MAX_IDS
    priority = SCHEMAS["Upload"]["properties"]["priority"]
    assert (priority["minimum"], priority["maximum"]) == (PRIORITY[0], PRIORITY[-1])


def test_every_object_lists_all_of_its_properties_as_required() -> None:
    optional = {"Upload", "Retries", "PauseScope"}  # what clients send
    incomplete = [
        name
        for name, schema in SCHEMAS.items()
        if name not in optional and list(schema.get("properties", {})) != schema.get("required", [])
    ]
    assert incomplete == []


def test_the_contract_is_served_with_the_values_of_this_installation() -> None:
    settings = config()
    served = create_app(settings, make_log(settings)).test_client().get("/api/openapi.json").get_json()
    assert served["openapi"] == "3.1.0"
    assert served["paths"] == CONTRACT["paths"]
    upload = served["components"]["schemas"]["Upload"]["properties"]
    assert upload["mapping"]["enum"] == [upload["mapping"]["default"], ""]
    assert served["info"]["version"] != "unknown"


def test_every_route_has_a_name_of_its_own_for_generated_clients() -> None:
    names = [route["operationId"] for route in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    assert {"post_jobs", "get_job", "get_job_download", "post_job_retry", "post_admin_breaker_action"} <= set(names)


def test_the_contract_names_what_a_download_can_be_asked_for() -> None:
    path = "/api/jobs/{job_id}/download"
    assert {"Range", "If-Range", "If-None-Match", "If-Match"} <= parameter_names("GET", path)
    assert {"ETag", "Content-Disposition", "Content-Range"} <= set(
        OPERATIONS["GET", path]["responses"]["206"]["headers"]
    )


def test_every_route_that_changes_state_requires_the_same_origin() -> None:
    unprotected = [
        (method, path)
        for method, path in OPERATIONS
        if method != "GET" and "Sec-Fetch-Site" not in parameter_names(method, path)
    ]
    assert unprotected == []
