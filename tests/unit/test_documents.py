"""The documents: generated parts are current, links work, names exist, lines are short."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from convertq.cli.main import COMMANDS, convertq

from docs.commands import commands
from docs.generate import PARTS, ROOT, generated

MARKDOWN = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "build" for part in path.relative_to(ROOT).parts)
)
LONGEST_LINE = 100
LINK = re.compile(r"\]\(([^)\s]+)\)")
MAN_PAGE = ROOT / "man" / "convertq.1"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", PARTS)
def test_generated_parts_are_current(document: str) -> None:
    assert (ROOT / document).read_text() == generated(document), "run `make docs`"


def test_no_line_is_longer_than_a_hundred_columns_except_in_tables_and_links() -> None:
    long = [
        f"{name_of(path)}:{number}"
        for path in MARKDOWN
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if not line.lstrip().startswith("|") and len(LINK.sub("", line)) > LONGEST_LINE
    ]
    assert long == []


def anchors_of(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> Iterator[tuple[Path, str]]:
    for path in MARKDOWN:
        for target in LINK.findall(path.read_text()):
            if "://" not in target:
                yield path, target


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for path, target in links():
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(f"{name_of(path)}: {target}")
    assert broken == []


def known_options() -> dict[str, set[str]]:
    return {
        each.name: set(re.findall(r"-[-\w]+", " ".join(option.words for option in each.options))) for each in commands()
    }


def test_every_command_that_a_document_names_exists_with_its_options() -> None:
    """`convertq NAME …` in code, up to the end of the code or of the shell command."""
    known, wrong = known_options(), []
    context = convertq.make_context("convertq", [], resilient_parsing=True)
    everywhere = {"--help", "--debug", "--version", "--json", *convertq.get_help_option_names(context)}
    for path in MARKDOWN:
        for words in re.findall(r"\b(?:convertq|cq) ([a-z][^`\n|;#$&>()]*)", path.read_text()):
            name = next((each for each in known if re.match(rf"{each}\b", words)), None)
            if not name:
                continue
            for option in re.findall(r"(?<= )--?[a-z][\w-]*", words):
                if option not in known[name] | everywhere:
                    wrong.append(f"{name_of(path)}: {words.strip()}")
    assert wrong == []


def test_every_option_that_the_man_page_names_exists() -> None:
    named = set(re.findall(r"--[a-z][a-z0-9-]*", re.sub(r"\\f[A-Z]|[\"\\]", "", MAN_PAGE.read_text())))
    assert named <= set().union(*known_options().values()) | {"--debug", "--version", "--help"}


def test_the_overview_names_every_command() -> None:
    assert {each.name.split()[0] for each in commands()} == set(COMMANDS)


def test_every_statement_constraint_and_class_that_the_architecture_names_exists() -> None:
    sources = [path for folder in ("sql", "queue", "worker", "web", "cli") for path in (ROOT / folder).rglob("*")]
    code = "\n".join(
        [*(path.stem for path in sources), *(path.read_text() for path in sources if path.suffix in (".py", ".sql"))]
    )
    text = (ROOT / "docs" / "architecture.md").read_text() + (ROOT / "sql" / "README.md").read_text()
    named = re.findall(r"`([a-z]+(?:_[a-z]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text)
    assert named
    assert [name for name in sorted(set(named)) if name not in code] == []


def test_every_step_of_the_walk_is_a_function_in_its_file() -> None:
    walk = (ROOT / "docs" / "architecture.md").read_text().partition("## The walk of one job")[2].partition("\n## ")[0]
    steps = re.findall(r"^\| \d+ \| `([^`]+)` \| `(\w+)` \|", walk, re.MULTILINE)
    assert len(steps) == walk.count("\n| ") - 1
    missing = [
        f"{file}: {function}"
        for file, function in steps
        if not (ROOT / file).exists()
        or not re.search(rf"\bdef {function}\(|^-- {function}:", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:cli|queue|worker|web|sql|tests|docs)/[\w./]+)`", text)
    assert [name for name in sorted(set(named)) if not (ROOT / name).exists()] == []


def rounded(text: str) -> tuple[float, float]:
    """The smallest and the largest number that is printed like this."""
    half = 0.5 / 10 ** len(text.partition(".")[2])
    return float(text) - half, float(text) + half


def test_every_ratio_follows_from_the_two_numbers_beside_it() -> None:
    wrong, found = [], 0
    for path in MARKDOWN:
        for shown, these, those in re.findall(r"([\d.]+)× \(([\d.]+) and ([\d.]+)", path.read_text()):
            found += 1
            (least, most), (below, above) = rounded(these), rounded(those)
            low, high = rounded(shown)
            if most / below < low or least / above > high:
                wrong.append(f"{name_of(path)}: {shown}× of {these} and {those}")
    assert found
    assert wrong == []


def test_the_changelog_has_an_entry_for_this_version() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert f"\n## [{setup['metadata']['version']}]" in (ROOT / "CHANGELOG.md").read_text()
