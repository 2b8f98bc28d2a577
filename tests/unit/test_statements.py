"""Owns the promises of the files in sql/queries: each says what it is and what it takes, and SQL is nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUERIES = sorted((ROOT / "sql" / "queries").glob("*.sql"))
PYTHON = sorted(path for room in ("cli", "web", "worker") for path in (ROOT / room).rglob("*.py"))
MIGRATIONS = "".join(path.read_text() for path in sorted((ROOT / "sql" / "migrations").glob("*.sql")))
TABLES = [*re.findall(r"CREATE TABLE \{schema\}\.(\w+)", MIGRATIONS), "schema_migrations"]
SQL = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|DROP|TRUNCATE|LISTEN|NOTIFY|SET|COPY|EXPLAIN)\s"
)
#: its channel is an identifier, which is not known until the schema is, and which no parameter can carry
ALLOWED = {"LISTEN {}"}

each_query = pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)


def without_comments(text: str) -> str:
    return re.sub(r"--.*", "", text)


def announced(text: str) -> set[str]:
    """The names of the Parameters line, without what it says about them."""
    [line] = re.findall(r"^-- Parameters: (.*)$", text, re.MULTILINE)
    if line == "(none)":
        return set()
    return {name.strip() for name in re.sub(r"\([^)]*\)|;.*", "", line).split(",")}


@each_query
def test_the_first_line_names_the_file(path: Path) -> None:
    assert re.match(rf"-- {path.stem}: \S", path.read_text())


@each_query
def test_the_parameters_are_exactly_those_announced(path: Path) -> None:
    text = path.read_text()
    assert announced(text) == set(re.findall(r"%\((\w+)\)s", without_comments(text)))


@each_query
def test_a_percent_sign_is_a_parameter_or_doubled(path: Path) -> None:
    assert not re.findall(r"%(?!\(\w+\)s|%)", path.read_text().replace("%%", ""))


@each_query
def test_it_says_which_rows_come_back(path: Path) -> None:
    assert re.search(r"^-- Rows: \S", path.read_text(), re.MULTILINE)


@each_query
def test_it_is_one_statement_of_under_60_lines(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 60
    assert ";" not in without_comments(text)


@each_query
def test_every_table_is_named_with_its_schema(path: Path) -> None:
    text = re.sub(r"'[^']*'", "''", without_comments(path.read_text()))
    tables = "|".join(TABLES)
    assert not re.findall(rf"(?<!\{{schema\}}\.)(?<!AS )\b(?:{tables})\b(?!\.)", text)


def test_there_are_queries_and_tables_to_look_at() -> None:
    assert len(QUERIES) > 30
    assert {"jobs", "job_events", "job_progress", "job_dependencies", "servers", "circuit_breaker"} <= set(TABLES)


def strings(path: Path) -> Iterator[str]:
    """Every string but the docstrings."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in documentation:
            yield node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_sql_is_written_in_python(path: Path) -> None:
    assert [text for text in strings(path) if SQL.match(text) and text not in ALLOWED] == []


def test_every_query_that_python_names_exists() -> None:
    """`database.run("claim_job")`: a slip would be found only when that line runs."""
    called = re.compile(r"\.(?:run|one|_try)\(\s*\"(\w+)\"")
    named = {name for path in PYTHON for name in called.findall(path.read_text())}
    assert named <= {path.stem for path in QUERIES}
