"""Puts the words of a page back into the rows and cells that a reader sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from convertq.gateway.pdf_text import Line, Word

CELL_GAP = 0.8  # of the height of the text: wider than any space, narrower than any column gap


@dataclass(frozen=True)
class Cell:
    """Words of one row that stand next to each other."""

    words: tuple[Word, ...]

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def left(self) -> float:
        return self.words[0].left

    @property
    def right(self) -> float:
        return self.words[-1].right

    def overlaps(self, other: Cell) -> bool:
        return self.left < other.right and other.left < self.right


@dataclass(frozen=True)
class Row:
    """The cells of one height of one page, from left to right."""

    page: int
    cells: tuple[Cell, ...]

    @cached_property
    def text(self) -> str:
        return "  ".join(cell.text for cell in self.cells)

    @property
    def middle(self) -> float:
        return self.cells[0].words[0].middle

    @property
    def height(self) -> float:
        return max(word.height for cell in self.cells for word in cell.words)

    def follows(self, other: Row, within: float) -> bool:
        """Below the other row on the same page, not further than so many heights."""
        return self.page == other.page and 0 < other.middle - self.middle <= within * other.height


def rows_of(page: int, lines: Iterable[Line]) -> list[Row]:
    """Words are sorted by position because a PDF may draw them in any order, e.g. column by column."""
    words = sorted((word for line in lines for word in line.words), key=lambda word: -word.middle)
    groups: list[list[Word]] = []
    for word in words:
        if groups and groups[-1][0].middle - word.middle <= 0.4 * min(groups[-1][0].height, word.height):
            groups[-1].append(word)
        else:
            groups.append([word])
    return [Row(page, cells_of(group)) for group in groups]


def cells_of(words: list[Word]) -> tuple[Cell, ...]:
    cells: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.left):
        if cells and word.left - cells[-1][-1].right <= CELL_GAP * word.height:
            cells[-1].append(word)
        else:
            cells.append([word])
    return tuple(Cell(tuple(cell)) for cell in cells)
