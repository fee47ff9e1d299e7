"""The wall clock for what is deleted by its age: what cannot be taken back does not follow it wherever it jumps."""

from __future__ import annotations

from typing import Final

_AT_ONCE_S: Final = 3600.0
_AFTER_S: Final = 86400.0


class BelievedClock:
    """A jump ahead, or a pause that looks like one, is believed a day later; a jump back at once.

    Clocks without a battery start anywhere, and one that somebody has set wrong is right again within hours.
    """

    def __init__(self) -> None:
        self._wall = self._boottime = 0.0
        self._ahead_since: float | None = None

    def begin(self, wall: float, boottime: float) -> None:
        """It was `wall` when something was last written; `boottime` (CLOCK_BOOTTIME) is now."""
        self._wall, self._boottime = wall, boottime

    def now(self, wall: float, boottime: float) -> float:
        """The time of day, as far as it is believed; `wall` and `boottime` are what the clocks say."""
        believed = self._wall + boottime - self._boottime
        if wall <= believed + _AT_ONCE_S:
            self._ahead_since = None
        elif self._ahead_since is None:
            self._ahead_since = boottime
        if self._ahead_since is not None and boottime - self._ahead_since < _AFTER_S:
            return believed
        self._wall, self._boottime, self._ahead_since = wall, boottime, None
        return wall
