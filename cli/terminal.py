"""What the terminal supports: colours, and characters beyond ASCII. Nothing else is sent to it."""

from __future__ import annotations

import io
import os
import sys

from convertq.cli.top.graph import in_ascii, knows_unicode


def has_colours() -> bool:
    """According to NO_COLOR and terminfo; a terminal that terminfo does not know is assumed to have them."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return False
    try:
        import curses
    except ImportError:  # a Python without it
        return True
    try:
        curses.setupterm(os.environ.get("TERM") or "dumb", sys.stdout.fileno())
        return curses.tigetnum("colors") >= 8
    except curses.error:
        return True


class AsciiWriter(io.TextIOWrapper):
    """It replaces characters itself: click considers an ASCII encoding a mistake, and would write UTF-8."""

    def write(self, text: str) -> int:
        return super().write(in_ascii(text))


def adapted(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """A file name that cannot be encoded must not end a command. A terminal with the locale C gets ASCII."""
    stream.reconfigure(errors="backslashreplace")
    if stream.isatty() and not knows_unicode(stream.encoding, os.environ):
        return AsciiWriter(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True)
    return stream
