"""The daemon's log, which users reach with what they write and do: one line each, bounded in length and in rate."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from nls_scheduler.units.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_LIMIT: Final = 1000
TRACEBACK_LIMIT: Final = 8000
LINES_AT_ONCE: Final = 1000
"""Of one place in the code; then `LINES_PER_S`."""
LINES_PER_S: Final = 1.0
_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"


def begin(*, verbose: bool) -> None:
    """Log to stderr from now on, what other packages log as well. `verbose`: each request, in whatever number."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(_FORMAT))
    handler.addFilter(Bounded())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


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
