"""GATEWAYS_FILE: what it may say, what it means, and the one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from convertq.queue.config import Config, ConfigError, read_config
from convertq.queue.gateway import digest_of

MINIMAL = '[gateways.one]\nurl = "http://h:1/process"\nmappings = ["a"]\n'
FULL = """
[gateways.papers-2]
url = "https://user:s3cret@h"
mappings = ["b", "c"]
timeout_ms = 5
max_calls = 7
path = "/api/x"
file_field = "input"
fields = {kind = "{mapping}", fixed = "{{1}}"}
accept = "text/xml"
health_path = "/up"
busy_status = [429, 503]
"""


def config(path: Path, text: str, **variables: str) -> Config:
    path.write_text(text)
    given = {"DATABASE_URL": "postgresql://h/d", "GATEWAYS_FILE": str(path), "GATEWAY_TIMEOUT_MS": "77", **variables}
    return read_config(given, needs_gateway=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateways.toml"


def test_a_file_describes_gateways_and_the_rest_comes_from_the_settings(file: Path) -> None:
    found = config(file, MINIMAL + FULL, GATEWAY_URL="http://ignored", MAPPINGS_ALLOWED="ignored")
    one, papers = found.gateways
    assert (one.url, one.path, one.timeout_ms, one.max_calls, one.health_path) == (
        "http://h:1", "/process", 77, 0, "/health",
    )  # fmt: skip
    assert (dict(one.fields), one.busy_status) == ({"mapping": "{mapping}", "pretty": "{pretty}"}, ())
    assert (papers.name, papers.timeout_ms, papers.max_calls, papers.busy_status) == ("papers-2", 5, 7, (429, 503))
    assert found.mappings_allowed == ("a", "b", "c")
    assert found.gateway_names == ["one", "papers-2"]
    assert "s3cret" not in repr(found)


def test_wrong_values_of_what_the_file_replaces_are_ignored(file: Path) -> None:
    found = config(file, MINIMAL, GATEWAY_URL="nonsense://", MAPPINGS_ALLOWED=" ")
    assert [gateway.name for gateway in found.gateways] == ["one"]


def test_without_a_file_there_is_one_gateway() -> None:
    variables = {"DATABASE_URL": "postgresql://h/d", "GATEWAY_URL": "http://h", "MAPPINGS_ALLOWED": "a,b"}
    [only] = read_config(variables).gateways
    assert (only.name, only.url, only.mappings, only.max_calls) == ("default", "http://h", ("a", "b"), 0)


def test_files_that_mean_the_same_have_the_same_digest(file: Path) -> None:
    digests = [
        digest_of(config(file, text).gateways)
        for text in (MINIMAL, f"# a comment\n{MINIMAL}max_calls = 0\n", MINIMAL + "max_calls = 1\n")
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_limit_may_be_adaptive(file: Path) -> None:
    [only] = config(file, MINIMAL + 'max_calls = "auto"\n').gateways
    assert only.is_adaptive
    assert only.declared == {"name": "one", "mappings": ["a"], "max_calls": 0, "is_auto": True}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "at least one table [gateways.NAME]"),
        ("x = ", "is not TOML"),
        ("[other]\n", "unknown key 'other'"),
        (MINIMAL.replace("one", "One"), "its name must be"),
        (MINIMAL.replace("one", "llm"), "and not llm"),
        ('[gateways.one]\nmappings = ["a"]\n', "url is missing"),
        ('[gateways.one]\nurl = "http://h"\n', "mappings is missing"),
        (MINIMAL + "timeout = 1\n", "unknown key 'timeout'"),
        (MINIMAL + "timeout_ms = 0\n", "timeout_ms must be a whole number"),
        (MINIMAL + "max_calls = -1\n", "max_calls must be a whole number"),
        (MINIMAL + "max_calls = true\n", "max_calls must be a whole number"),
        (MINIMAL + 'max_calls = "automatic"\n', "max_calls must be a whole number from 0 to 10000, or 'auto'"),
        (MINIMAL + 'path = "x"\n', "path must be a path"),
        (MINIMAL + 'file_field = "a\\"b"\n', "without quotation marks"),
        (MINIMAL + 'fields = {a = "{owner}"}\n', "it may name {mapping} and {pretty}"),
        (MINIMAL + 'fields = {a = "{"}\n', "it may name {mapping} and {pretty}"),
        (MINIMAL + "busy_status = [200]\n", "from 300 to 599"),
        (MINIMAL.replace('["a"]', "[]"), "at least one name"),
        (MINIMAL.replace('["a"]', '["a", "a"]'), "names 'a' twice"),
        (MINIMAL + MINIMAL.replace("one", "two"), "'a' is named twice: by one and two"),
        (MINIMAL.replace("http:", "ftp:"), "url must be http://host:port"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(file: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(file, text)
    [problem] = refused.value.problems
    assert says in problem
    assert problem.startswith("GATEWAYS_FILE = ")


def test_a_file_that_is_not_there_is_a_mistake_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: no such file"):
        read_config({"DATABASE_URL": "postgresql://h/d", "GATEWAYS_FILE": str(tmp_path / "none.toml")})
