"""How a command line waits: one live line on its terminal, otherwise one line for each new reason."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from nls_scheduler.cli.output import write
from nls_scheduler.units.texts import columns, within

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLEAR: Final = "\r\x1b[K"
_USUAL_WIDTH: Final = 80
"""Of a terminal that does not know its own."""


class WaitingLine:
    """Tells on `stream` for how long and why a workload waits. `show` and `tick` while it waits, then `clear`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._since: float | None = None
        self._text = ""

    @property
    def _live(self) -> bool:
        """Whether the terminal is ours: in the background (`&`) it is the shell's, with what its user is typing."""
        if not self._stream.isatty():
            return False
        with suppress(OSError, ValueError):  # it is nobody's
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        return True

    def show(self, view: Mapping[str, Any]) -> None:
        """The workload's newest status entry; only one that waits is shown."""
        if view["phase"] != "queued":
            return
        if self._since is None:
            self._since = time.monotonic()
        position = "" if view["position"] is None else f" ({view['position']}. in line)"
        text = f"waiting for a GPU{position}: {view['reason']}"
        if text != self._text and not self._live:
            write(self._stream, f"nls: {text}\n")
        self._text = text
        self.tick()

    def tick(self) -> None:
        """Bring the live line up to date; to be called about once a second."""
        if self._live and self._since is not None:
            waited = f" [{int(time.monotonic() - self._since)} s]"
            text, most = f"nls: {self._text}", max(0, _width_of(self._stream) - 1 - len(waited))
            text = text if columns(text) <= most else within(text, most - 3) + "..."
            write(self._stream, f"{_CLEAR}{text}{waited}")

    def make_way(self) -> None:
        """Something else is told in its place; the next `tick` shows it again below."""
        if self._live and self._since is not None:
            write(self._stream, _CLEAR)

    def clear(self) -> None:
        """The wait is over. Idempotent."""
        self.make_way()
        self._since, self._text = None, ""


def _width_of(terminal: TextIO) -> int:
    """In columns: a longer line would be broken, and only its last part cleared."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(terminal.fileno()).columns or _USUAL_WIDTH
    return _USUAL_WIDTH
