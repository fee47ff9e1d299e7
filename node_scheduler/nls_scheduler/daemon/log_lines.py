"""The daemon's log, which users reach with what they write and do: one line each, bounded in length and in rate."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nls_scheduler.units.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

MESSAGE_LIMIT: Final = 1000
TRACEBACK_LIMIT: Final = 8000
LINES_AT_ONCE: Final = 1000
"""Of one place in the code; then `LINES_PER_S`."""
LINES_PER_S: Final = 1.0
LINES_KEPT: Final = 1000
"""For who reads stderr, and does not at the moment; more are not told."""
_FLUSHED_WITHIN_S: Final = 1.0
_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"


def begin(*, verbose: bool) -> None:
    """Log to stderr from now on, what other packages log as well. `verbose`: each request, in whatever number."""
    handler = Unhurried(sys.stderr)
    handler.setFormatter(OneLine(_FORMAT))
    handler.addFilter(Bounded())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


class Unhurried(logging.Handler):
    """Writes in a thread of its own: who has stopped reading, as a terminal does by Ctrl-S, stops nobody who logs.

    What `LINES_KEPT` lines wait for is not told, but for how many that were.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event] = queue.Queue(LINES_KEPT)
        self._untold = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Never waits."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._untold += 1

    def flush(self) -> None:
        """Until all is written, for a moment at most; `logging` does so at the end of the process."""
        written = threading.Event()
        with suppress(queue.Full):
            self._lines.put_nowait(written)
            written.wait(_FLUSHED_WITHIN_S)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            untold, self._untold = self._untold, 0
            told = f"{line}\n({untold} lines were not told, as nobody read them)" if untold else line
            with suppress(OSError, ValueError):  # nobody is there any more, or the disk is full: nobody can be told
                self._stream.write(f"{told}\n")
                self._stream.flush()


class OneLine(logging.Formatter):
    """No message is longer than `MESSAGE_LIMIT` characters, nor looks like another one; tracebacks are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """The line, but for what follows an exception."""
        record.message = printable(_shortened(record.message, MESSAGE_LIMIT))
        return super().formatMessage(record)

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 - the base class's name
        """Its end, which says what it is."""
        told = super().formatException(ei)
        return "\n".join(f"  {printable(line)}" for line in told[-TRACEBACK_LIMIT:].splitlines())


class Bounded(logging.Filter):
    """So many lines of each place in the code and no more, so that none keeps the others from being told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._places: dict[tuple[str, int], tuple[float, float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is told; the first one that is told again says how many were not."""
        if record.levelno <= logging.DEBUG:
            return True
        now, place = self._clock(), (record.pathname, record.lineno)
        left, before, untold = self._places.get(place, (float(LINES_AT_ONCE), now, 0))
        left = min(float(LINES_AT_ONCE), left + (now - before) * LINES_PER_S)
        if left < 1:
            self._places[place] = left, now, untold + 1
            return False
        self._places[place] = left - 1, now, 0
        if untold:
            told = _shortened(record.getMessage(), MESSAGE_LIMIT // 2)
            record.msg, record.args = f"{told} (and {untold} more of the kind before)", ()
        return True


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
