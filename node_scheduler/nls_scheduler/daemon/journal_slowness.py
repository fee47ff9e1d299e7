"""How long writes of the journal take: everything the daemon does waits for each, and a slow disk is named."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLOW_S: Final = 1.0
TOLD_FOR_S: Final = 600.0
"""A slow write is no news for so long, and as long the status shows it."""
log = logging.getLogger(__name__)


class Slowness:
    """Of one journal's writes.

    Args:
        path: the journal's, for people.
        clock: seconds, monotonic.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._late_s = 0.0
        self._told: tuple[str, float] | None = None

    def wrote(self, seconds: float) -> None:
        """A write took so long, whether it went well or not."""
        self._late_s += seconds
        if seconds >= SLOW_S and self.told is None:
            told = f"A write of the journal {self._path} took {seconds:.1f} s, and all else waited: its disk is slow."
            log.warning("%s", told)
            self._told = told, self._clock()

    def take_late_s(self) -> float:
        """How long writes have taken since this was asked last."""
        late_s, self._late_s = self._late_s, 0.0
        return late_s

    @property
    def told(self) -> str | None:
        """A sentence for the status; `None` while no write was slow."""
        if self._told is None or self._clock() > self._told[1] + TOLD_FOR_S:
            return None
        return self._told[0]
