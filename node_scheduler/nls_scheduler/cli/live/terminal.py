"""The terminal of `nls top`: taken over, drawn on, and given back as it was, whatever happens."""

from __future__ import annotations

import os
import sys
import termios
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType

from nls_scheduler.cli.live.drawing import Canvas
from nls_scheduler.cli.live.glyphs import glyphs_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text


class Terminal:
    """Standard input and output. Colours as the terminal has them and `NO_COLOR` allows.

    One that cannot move its cursor (`TERM=dumb`) gets each frame below the one before, without a single control
    character.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, width=_ANY_WIDTH)
        self.moves_cursor = not self._console.is_dumb_terminal
        self._before: list[str] = []
        self._was: list[Any] = []

    @property
    def canvas(self) -> Canvas:
        """As large as it is now."""
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        return Canvas(columns or 80, rows or 24, glyphs_for(sys.stdout.encoding))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """It is this view's while inside."""
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> None:
        """Keys come one by one and are not echoed; Ctrl-C and Ctrl-Z stay signals."""
        self._was = termios.tcgetattr(sys.stdin.fileno())
        tty.setcbreak(sys.stdin.fileno())
        if self.moves_cursor:
            self._console.set_alt_screen(enable=True)
            self._console.show_cursor(show=False)
        self.redraw()

    def give_back(self) -> None:
        """As it was. Of one that is gone already nothing can be put right."""
        with suppress(OSError, termios.error):
            if self.moves_cursor:
                self._console.show_cursor(show=True)
                self._console.set_alt_screen(enable=False)
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, self._was)

    def draw(self, lines: Sequence[Text]) -> None:
        """Only lines that differ from those drawn before are written: a slow line is not filled for nothing."""
        drawn = [self._rendered(line) for line in lines]
        if not self.moves_cursor:
            if drawn != self._before:
                self._write("\n".join([*(line.rstrip() for line in drawn), ""]))
        else:
            anew = len(drawn) != len(self._before)
            changed = [(row, line) for row, line in enumerate(drawn) if anew or line != self._before[row]]
            self._write((_CLEARED if anew else "") + "".join(f"{_at(row)}{_REST}{line}" for row, line in changed))
        self._before = drawn

    def redraw(self) -> None:
        """What is on the screen may be anything: the next frame is drawn whole."""
        self._before = []

    def _rendered(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", no_wrap=True)
        return captured.get()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


_ANY_WIDTH: Final = 10_000
"""Lines are cut already when they come here."""
_CLEARED: Final = str(Control((ControlType.HOME,), (ControlType.CLEAR,)))


def _at(row: int) -> str:
    return str(Control.move_to(0, row))


_REST: Final = str(Control((ControlType.ERASE_IN_LINE, 0)))
"""To the end of the line; before it is written, as behind a full line the last letter would go."""
