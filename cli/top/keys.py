"""The keyboard of `convertq top`: single keys without echo. The terminal is restored in every case."""

from __future__ import annotations

import contextlib
import os
import re
import termios
import tty
from collections.abc import Iterator

KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[^\x1b]")
UNFINISHED = re.compile(rb"\x1b([\[O][0-9;]*)?$")
NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"k": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"j": "down",
    b"q": "quit",
    b"r": "retry",
    b"f": "filter",
    b"/": "filter",
    b"?": "help",
    b"\x0c": "redraw",
}


@contextlib.contextmanager
def single_keys(descriptor: int) -> Iterator[None]:
    """Ctrl-C and Ctrl-Z still send signals."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal itself may be gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keyboard:
    """Turns bytes, in whatever pieces they arrive, into the names of keys; unknown keys are ignored."""

    def __init__(self) -> None:
        self._begun = b""

    def read(self, descriptor: int) -> list[str]:
        """The keys that were typed; raises EOFError when the terminal is gone."""
        try:
            typed = os.read(descriptor, 1024)
        except OSError:
            typed = b""
        if not typed:
            raise EOFError
        return self.decode(typed)

    def decode(self, typed: bytes) -> list[str]:
        text = self._begun + typed
        unfinished = UNFINISHED.search(text)
        self._begun = unfinished[0] if unfinished else b""
        return [NAMES[key] for key in KEY.findall(text.removesuffix(self._begun)) if key in NAMES]
