"""Which room may import which: the arrows of CONTRIBUTING.md go one way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: each room, and those that it may know
ARROWS = {
    "sql": set(),
    "worker": {"sql"},
    "gateway": set(),
    "web": {"worker"},
    "cli": {"gateway", "sql", "web", "worker"},
}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_from_where_its_arrows_lead(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) convertq(?:\.(\w+)| import (\w+))", path.read_text(), re.MULTILINE)
        others = {first or second for first, second in imported} - {room}
        assert others <= ARROWS[room], f"{path.relative_to(ROOT)} imports {others - ARROWS[room]}"
