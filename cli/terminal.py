"""What the terminal can do: colours, and letters beyond ASCII. What it cannot is not sent to it."""

from __future__ import annotations

import io
import os
import sys

from convertq.cli.top_graph import in_ascii, knows_unicode


def has_colours() -> bool:
    """As NO_COLOR and terminfo say; a terminal that terminfo does not know is taken to have them."""
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
    """Not an encoding of ASCII: click takes that for a mistake, and writes UTF-8 all the same."""

    def write(self, text: str) -> int:
        return super().write(in_ascii(text))


def adapted(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """A name must not end a command; and a terminal whose locale is C gets ASCII, as wide as the text was."""
    stream.reconfigure(errors="backslashreplace")
    if stream.isatty() and not knows_unicode(stream.encoding, os.environ):
        return AsciiWriter(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True)
    return stream
