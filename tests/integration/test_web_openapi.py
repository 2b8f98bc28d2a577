"""Owns the promise that the served contract and the routes are the same, in both directions."""

from __future__ import annotations

import re

from convertq.web.app import create_app
from convertq.web.openapi import document as contract
from convertq.web.web_log import make_log
from werkzeug.routing import Rule

from tests.jobs import config
from tests.web_client import Site

PAGES = ("pages", "static")  # for people, not part of the API
CONVERTED = {"any(open, close):action": "action", "uuid:job_id": "job_id"}


def routes() -> set[tuple[str, str]]:
    settings = config()
    app = create_app(settings, make_log(settings))
    rules = [rule for rule in app.url_map.iter_rules() if rule.endpoint.partition(".")[0] not in PAGES]
    return {(method, path_of(rule)) for rule in rules for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}


def path_of(rule: Rule) -> str:
    return re.sub(r"<([^>]+)>", lambda found: f"{{{CONVERTED[found[1]]}}}", rule.rule)


def promised() -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in contract(("x",))["paths"].items() for method in methods}


def test_every_route_is_in_the_contract() -> None:
    assert routes() - promised() == set()


def test_the_contract_promises_no_route_that_is_not_there() -> None:
    assert promised() - routes() == set()


def test_it_is_served_to_anybody(site: Site) -> None:
    served = site.visitor().get("/api/openapi.json").json()
    assert served["openapi"] == "3.1.0"
    assert served["paths"].keys() == contract(("x",))["paths"].keys()


def test_every_route_has_a_name_of_its_own_for_generated_clients() -> None:
    names = [route["operationId"] for methods in contract(("x",))["paths"].values() for route in methods.values()]
    assert len(set(names)) == len(names)
    assert {"post_jobs", "get_job", "get_job_download", "post_job_retry", "post_admin_breaker_action"} <= set(names)


def test_the_contract_names_what_a_download_can_be_asked_for() -> None:
    download = contract(("x",))["paths"]["/api/jobs/{job_id}/download"]["get"]
    assert {"Range", "If-Range", "If-None-Match", "If-Match"} <= {given["name"] for given in download["parameters"]}
    assert {"ETag", "Content-Disposition", "Content-Range"} <= set(download["responses"]["206"]["headers"])
