"""The loop of `convertq top`: waits for news, keys and signals, and draws. The terminal is given back in every case."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from convertq.cli.terminal import has_colours
from convertq.cli.top_graph import knows_unicode
from convertq.cli.top_keys import Keyboard, single_keys
from convertq.cli.top_sampler import Answer, News, Sampler
from convertq.cli.top_screen import fitted, plain, screen
from convertq.cli.top_snapshot import ERROR_STATES, Snapshot, Trouble
from convertq.cli.top_view import View
from convertq.worker.signals import Signals
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
        """Until `q`, or the signal that it returns."""
        before = {number: signal.getsignal(number) for number in HANDLED}
        signals = Signals(HANDLED)
        self._sampler.start()
        try:
            while (ended := self._run_in_front(signals)) is signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)  # by Ctrl-Z; goes on here when the shell says so
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
                came, ready = signals.wait(None, self._input, self._sampler.bell)
                for number in came:
                    if number in ENDS or number is signal.SIGTSTP:
                        return number
                if self._sampler.bell in ready:
                    for news in self._sampler.news():
                        self._hear(news)
                if self._input in ready and not self._obey():
                    return None

    def _draw(self, draw: Draw) -> None:
        draw(self._compose)

    def _compose(self, width: int, height: int) -> list[Text]:
        return [fitted(line, width, unicode=self._unicode) for line in screen(self._view, width, height)]

    def _hear(self, news: News) -> None:
        match news:
            case Snapshot():
                self._view.see(news)
            case Trouble():
                self._view.trouble = news
            case Answer(line):
                self._view.message = line
            case Exception():
                raise news

    def _obey(self) -> bool:
        """False when it is to end: `q`, or a terminal that is gone."""
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
                view.helps = not view.helps

    def _retry(self) -> None:
        view = self._view
        if view.selected is None or view.place is None:
            view.message = "select a failed job first, with the arrows or j and k"
            return
        view.message = f"{view.selected} ..."
        self._sampler.retry(view.selected)


@contextlib.contextmanager
def drawing() -> Iterator[Draw]:
    """How to show a screen: on the alternate one, or, where a terminal has none, each below the one before."""
    console = Console(force_terminal=True, no_color=not has_colours())
    if console.is_dumb_terminal:
        yield draw_below
        return
    with console.screen(hide_cursor=True) as alternate:

        def draw(compose: Compose) -> None:
            width, height = terminal_size()
            lines = compose(width, height)
            console.size = ConsoleDimensions(width, height)
            with console:  # one write, or it would flicker
                console.control(Control.home())
                alternate.update(Group(*lines))

        try:
            yield draw
        finally:
            console.clear()  # some terminals that were resized would leave rows of it on the other screen


def draw_below(compose: Compose) -> None:
    """A line less: the cursor takes the last one, and the first has the word of trouble."""
    width, height = terminal_size()
    print("\n".join(plain(compose(width, height - 1))), flush=True)


def terminal_size() -> tuple[int, int]:
    """Of the terminal itself: COLUMNS in the environment would be as it was when the shell started."""
    try:
        width, height = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        width, height = 0, 0
    return width or 80, height or 24
