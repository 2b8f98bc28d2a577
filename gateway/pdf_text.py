"""Reads the words of a PDF, with their places on the page, through pdfium."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pypdfium2
from convertq.gateway.answer import Refusal
from convertq.gateway.xml_text import without_illegal
from pypdfium2 import raw

HYPHENATED = 0x02  # pdfium's mark where a word is broken by a hyphen at the end of a line
LINE_ENDS = {0x0A, 0x0D, HYPHENATED}


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    left: float
    right: float
    bottom: float
    top: float

    @property
    def height(self) -> float:
        return self.top - self.bottom

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass(slots=True)
class Line:
    """Words in the order in which the PDF draws them; a hyphenated line ends inside a word."""

    words: list[Word] = field(default_factory=list)
    hyphenated: bool = False


def read_pages(path: Path) -> Iterator[list[Line]]:
    """The lines of each page; refuses a document that cannot be opened."""
    document = open_document(path)
    try:
        for number in range(len(document)):
            yield read_page(document, number)
    finally:
        document.close()


def open_document(path: Path) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == raw.FPDF_ERR_PASSWORD:
            raise Refusal(422, "the PDF is encrypted and needs a password") from error
        raise Refusal(422, "the PDF is damaged, or it has no pages") from error


def read_page(document: pypdfium2.PdfDocument, number: int) -> list[Line]:
    try:
        page = document[number]
        text = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise Refusal(422, f"page {number + 1} of the PDF is damaged") from error
    try:
        return lines_of(text.raw, text.count_chars())
    finally:
        text.close()
        page.close()


def lines_of(text: raw.FPDF_TEXTPAGE, count: int) -> list[Line]:
    """Cuts the characters of a page into words and lines; only lines with words are kept."""
    lines, line, start = [], Line(), 0
    codes = [raw.FPDFText_GetUnicode(text, index) for index in range(count)]
    codes.append(0x0A)
    for index, code in enumerate(codes):
        if code not in LINE_ENDS and not chr(code).isspace():
            continue
        if word := word_of(text, codes, start, index):
            line.words.append(word)
        start = index + 1
        if code in LINE_ENDS and line.words:
            line.hyphenated = code == HYPHENATED
            lines.append(line)
            line = Line()
    return lines


def word_of(text: raw.FPDF_TEXTPAGE, codes: list[int], start: int, end: int) -> Word | None:
    spelled = spell(codes[start:end])
    if not spelled:
        return None
    first, last = box(text, start), box(text, end - 1)
    return Word(spelled, first.left, max(first.right, last.right), first.bottom, first.top)


def spell(codes: list[int]) -> str:
    """pdfium gives UTF-16 units: pairs are joined here, and what XML cannot hold is dropped."""
    units = "".join(map(chr, codes))
    return without_illegal(units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore"))


def box(text: raw.FPDF_TEXTPAGE, index: int) -> raw.FS_RECTF:
    # The loose box has the height of the font, so that "a" and "A" stand on one row.
    rectangle = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(text, index, ctypes.byref(rectangle))
    return rectangle
