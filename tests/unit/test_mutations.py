"""The list of tests/chaos/mutations.py fits the code: a safeguard that was renamed would never be taken away."""

from __future__ import annotations

from tests.chaos.mutations import ROOT, mutations


def test_every_safeguard_is_in_its_file_once() -> None:
    assert [each.name for each in mutations() if (ROOT / each.file).read_text().count(each.safeguard) != 1] == []


def test_every_mutation_names_tests_that_exist() -> None:
    named = {name.partition("::")[0] for each in mutations() for name in each.tests}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
