"""Mappings and samples are complete and can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from convertq.gateway import samples
from convertq.gateway.answer import Refusal
from convertq.gateway.mapping import FOLDER, Field, load_mapping, mapping_names
from convertq.gateway.samples.make_samples import make_samples
from convertq.gateway.values import TYPES
from lxml import etree

SAMPLES = Path(next(iter(samples.__path__)))


@pytest.mark.parametrize("name", mapping_names())
def test_every_mapping_ships_a_schema_for_its_root(name: str) -> None:
    schema = etree.parse(FOLDER / f"{name}.xsd")
    etree.XMLSchema(schema)
    roots = schema.getroot().findall("{http://www.w3.org/2001/XMLSchema}element")
    assert [element.get("name") for element in roots] == [load_mapping(name).root]


@pytest.mark.parametrize("name", mapping_names())
def test_every_mapping_uses_known_types(name: str) -> None:
    for wanted in load_mapping(name).find:
        types = [wanted.type] if isinstance(wanted, Field) else [column.type for column in wanted.columns]
        assert set(types) <= set(TYPES)


@pytest.mark.parametrize("name", ["nope", "../mappings/text_v1", "", "text_v1.toml"])
def test_an_unknown_mapping_is_refused_and_never_a_path(name: str) -> None:
    with pytest.raises(Refusal) as refused:
        load_mapping(name)
    assert refused.value.status == 400


def test_the_samples_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    make_samples(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(made) >= 13
    assert made == {name: (SAMPLES / name).read_bytes() for name in made}
