"""The loop of `convertq top`: it waits for updates, keys and signals, and draws. It always restores the terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from convertq.cli.terminal import has_colours
from convertq.cli.top.graph import knows_unicode
from convertq.cli.top.keys import Keyboard, single_keys
from convertq.cli.top.sampler import Answer, Sampler, Update
from convertq.cli.top.screen import fitted, plain, screen
from convertq.cli.top.snapshot import ERROR_STATES, DatabaseProblem, Snapshot
from convertq.cli.top.view import View
from convertq.queue.signals import Signals
from rich.console import Console, ConsoleDimensions, Group
from rich.control import Control

if TYPE_CHECKING:
    from rich.text import Text

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HANDLED = (*ENDS, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
NEXT = dict(zip(ERROR_STATES, [*list(ERROR_STATES)[1:], next(iter(ERROR_STATES))], strict=True))
Compose = Callable[[int, int], "list[Text]"]  # a screen of this width and height
Draw = Callable[[Compose], None]


class Live:
    def __init__(self, sampler: Sampler, view: View) -> None:
        self._sampler, self._view = sampler, view
        self._keyboard = Keyboard()
        self._unicode = knows_unicode(sys.stdout.encoding, os.environ)
        self._input = sys.stdin.fileno()

    def run(self) -> signal.Signals | None:
        """Runs until `q` is typed, or until the signal that it returns."""
        before = {number: signal.getsignal(number) for number in HANDLED}
        signals = Signals(HANDLED)
        self._sampler.start()
        try:
            while (ended := self._run_in_front(signals)) is signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)  # after Ctrl-Z; the shell continues the process here
            return ended
        finally:
            self._sampler.stop()
            signals.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run_in_front(self, signals: Signals) -> signal.Signals | None:
        with single_keys(self._input), drawing() as draw:
            while True:
                self._draw(draw)
                came, ready = signals.wait(None, self._input, self._sampler.updates_ready)
                for number in came:
                    if number in ENDS or number is signal.SIGTSTP:
                        return number
                if self._sampler.updates_ready in ready:
                    for update in self._sampler.take_updates():
                        self._apply(update)
                if self._input in ready and not self._handle_keys():
                    return None

    def _draw(self, draw: Draw) -> None:
        draw(self._compose)

    def _compose(self, width: int, height: int) -> list[Text]:
        return [fitted(line, width, unicode=self._unicode) for line in screen(self._view, width, height)]

    def _apply(self, update: Update) -> None:
        match update:
            case Snapshot():
                self._view.update(update)
            case DatabaseProblem():
                self._view.problem = update
            case Answer(line):
                self._view.message = line
            case Exception():
                raise update

    def _handle_keys(self) -> bool:
        """False when the program is to end: after `q`, or when the terminal is gone."""
        try:
            keys = self._keyboard.read(self._input)
        except EOFError:
            return False
        for key in keys:
            if key == "quit":
                return False
            self._view.message = ""
            self._act(key)
        return True

    def _act(self, key: str) -> None:
        view = self._view
        match key:
            case "up" | "down":
                view.move(1 if key == "down" else -1)
            case "retry":
                self._retry()
            case "filter":
                view.shows = NEXT[view.shows]
                self._sampler.show(view.shows)
            case "help":
                view.shows_help = not view.shows_help

    def _retry(self) -> None:
        view = self._view
        if view.selected is None or view.position is None:
            view.message = "select a failed job first, with the arrows or j and k"
            return
        view.message = f"{view.selected} ..."
        self._sampler.retry(view.selected)


@contextlib.contextmanager
def drawing() -> Iterator[Draw]:
    """Yields the function that draws: on the alternate screen, or line after line where a terminal has none."""
    console = Console(force_terminal=True, no_color=not has_colours())
    if console.is_dumb_terminal:
        yield draw_below
        return
    with console.screen(hide_cursor=True) as alternate:

        def draw(compose: Compose) -> None:
            width, height = terminal_size()
            lines = compose(width, height)
            console.size = ConsoleDimensions(width, height)
            with console:  # a single write, so that nothing flickers
                console.control(Control.home())
                alternate.update(Group(*lines))

        try:
            yield draw
        finally:
            console.clear()  # some terminals that were resized keep rows of it on the main screen


def draw_below(compose: Compose) -> None:
    """One line less than the height: the cursor occupies the last one, and the first shows a problem."""
    width, height = terminal_size()
    print("\n".join(plain(compose(width, height - 1))), flush=True)


def terminal_size() -> tuple[int, int]:
    """The size that the terminal itself reports: COLUMNS in the environment does not follow a resize."""
    try:
        width, height = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        width, height = 0, 0
    return width or 80, height or 24
