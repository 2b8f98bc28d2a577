"""Measures the libraries that could read PDFs, each in a fresh process: time and peak memory.

Run as: python -m convertq.gateway.measure FILE.pdf... (pip install pdfminer.six for the comparison)
"""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def with_pypdfium2(path: Path) -> tuple[int, int]:
    from convertq.gateway.pdf_text import read_pages

    pages = list(read_pages(path))
    return len(pages), sum(len(word.text) for lines in pages for line in lines for word in line.words)


def with_pdfminer(path: Path) -> tuple[int, int]:
    from pdfminer.high_level import extract_pages  # type: ignore[import-not-found, unused-ignore]
    from pdfminer.layout import LTTextContainer  # type: ignore[import-not-found, unused-ignore]

    pages = [list(page) for page in extract_pages(path)]
    texts = (box.get_text() for page in pages for box in page if isinstance(box, LTTextContainer))
    return len(pages), sum(len("".join(text.split())) for text in texts)


LIBRARIES: dict[str, Callable[[Path], tuple[int, int]]] = {"pypdfium2": with_pypdfium2, "pdfminer": with_pdfminer}


def measure(library: str, paths: list[Path]) -> str:
    """One line about all files; to be run in a process that has done nothing else."""
    LIBRARIES[library](paths[0])
    began = time.perf_counter()
    counts = [LIBRARIES[library](path) for path in paths]
    seconds = time.perf_counter() - began
    pages, characters = (sum(column) for column in zip(*counts, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    speed = f"{seconds:.2f} s {1000 * seconds / pages:.1f} ms/page"
    return f"{library:10} {pages} pages {characters} characters {speed} {peak} MiB"


def main(arguments: list[str]) -> None:
    if arguments and arguments[0] in LIBRARIES:
        sys.stdout.write(measure(arguments[0], [Path(path) for path in arguments[1:]]) + "\n")
        return
    for library in LIBRARIES:
        if importlib.util.find_spec(library):
            subprocess.run([sys.executable, "-m", "convertq.gateway.measure", library, *arguments], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
