"""Every file in sql/queries states its name, parameters and rows, and no SQL is written anywhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUERIES = sorted((ROOT / "sql" / "queries").glob("*.sql"))
PYTHON = sorted(path for room in ("cli", "embedded", "queue", "web", "worker") for path in (ROOT / room).rglob("*.py"))
MIGRATIONS = "".join(path.read_text() for path in sorted((ROOT / "sql" / "migrations").glob("*.sql")))
TABLES = [*re.findall(r"CREATE TABLE \{schema\}\.(\w+)", MIGRATIONS), "schema_migrations"]
SQL = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|DROP|TRUNCATE|LISTEN|NOTIFY|SET|COPY|EXPLAIN)\s"
)


def without_comments(text: str) -> str:
    return re.sub(r"--.*", "", text)


def announced(text: str) -> set[str]:
    """The names of the Parameters line and of the lines that continue it, without what they say about them."""
    [found] = re.findall(r"^-- Parameters: (.*?)$(?=\n-- Rows:)", text, re.MULTILINE | re.DOTALL)
    line = found.replace("\n--", " ")
    if line == "(none)":
        return set()
    return {name.strip() for name in re.sub(r"\([^)]*\)|;.*", "", line).split(",")}


def offenders(breaks_the_rule: Callable[[str], object]) -> list[str]:
    return [path.stem for path in QUERIES if breaks_the_rule(path.read_text())]


def test_the_first_line_names_the_file() -> None:
    assert [path.stem for path in QUERIES if not re.match(rf"-- {path.stem}: \S", path.read_text())] == []


def test_the_parameters_are_exactly_those_announced() -> None:
    assert offenders(lambda text: announced(text) != set(re.findall(r"%\((\w+)\)s", without_comments(text)))) == []


def test_a_percent_sign_is_a_parameter_or_doubled() -> None:
    assert offenders(lambda text: re.search(r"%(?!\(\w+\)s|%)", text.replace("%%", ""))) == []


def test_each_file_says_which_rows_come_back() -> None:
    assert offenders(lambda text: not re.search(r"^-- Rows: \S", text, re.MULTILINE)) == []


def test_each_file_is_one_statement_of_under_60_lines() -> None:
    """The largest one would be two statements with the same rules in both."""
    assert offenders(lambda text: len(text.splitlines()) >= 60) == ["complete_and_claim"]
    assert offenders(lambda text: len(text.splitlines()) >= 90 or ";" in without_comments(text)) == []


def test_every_table_is_named_with_its_schema() -> None:
    bare = re.compile(rf"(?<!\{{schema\}}\.)(?<!AS )\b(?:{'|'.join(TABLES)})\b(?!\.)")
    assert offenders(lambda text: bare.search(re.sub(r"'[^']*'", "''", without_comments(text)))) == []


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


def test_no_sql_is_written_in_python() -> None:
    assert [(path.name, text) for path in PYTHON for text in strings(path) if SQL.match(text)] == []


def test_every_query_that_python_names_exists() -> None:
    """`database.run("claim_job")`: a slip would be found only when that line runs."""
    called = re.compile(r"\.(?:run|one|_try)\(\s*\"(\w+)\"")
    named = {name for path in PYTHON for name in called.findall(path.read_text())}
    assert named <= {path.stem for path in QUERIES}
