"""Joins the lines of a page into paragraphs, in the order in which the PDF draws them."""

from __future__ import annotations

from convertq.gateway.pdf_text import Line

PARAGRAPH_GAP = 1.6  # line distances above this many heights begin a new paragraph
SIZE_CHANGE = 1.25  # a heading is that much larger than the text below it


def paragraphs_of(lines: list[Line]) -> list[str]:
    paragraphs: list[str] = []
    above: Line | None = None
    for line in lines:
        text = " ".join(word.text for word in line.words)
        if above is None or begins_paragraph(above, line):
            paragraphs.append(text)
        else:
            paragraphs[-1] += text if above.hyphenated else f" {text}"
        above = line
    return paragraphs


def begins_paragraph(above: Line, line: Line) -> bool:
    """A wide gap, a step back up (the next column) or another size of text; never inside a word."""
    if above.hyphenated:
        return False
    last, first = above.words[0], line.words[0]
    sizes = sorted((last.height, first.height))
    if sizes[1] > SIZE_CHANGE * sizes[0]:
        return True
    distance = last.middle - first.middle
    return distance < -0.5 * sizes[0] or distance > PARAGRAPH_GAP * sizes[1]
