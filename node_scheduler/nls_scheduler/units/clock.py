"""The daemon's clocks: one for decisions, which stands while the machine sleeps, and the wall clock for people.

And those of what runs beside a notebook's cells, which may replace `time.monotonic` and `time.time` as tests do.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Final

_A_NAP_S: Final = 1.0


def boottime_s() -> float:
    """Seconds since boot, time asleep included (CLOCK_BOOTTIME): how old something is, never a deadline."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def monotonic_s() -> float:
    """`time.monotonic()`, whatever a cell has put in its place."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def wall_s() -> float:
    """`time.time()`, whatever a cell has put in its place."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class Clock:
    """The clock of decisions, with how long the machine has slept in this process's life: people live through that."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        # From which reading on as much time asleep lies behind the machine.
        self._asleep = [(-math.inf, boottime_s() - time.monotonic())]

    def awake_s(self) -> float:
        """See the function."""
        asleep_s = boottime_s() - (ticks := time.monotonic())
        at = ticks + self._ahead_s
        if asleep_s > self._asleep[-1][1] + _A_NAP_S:
            self._asleep.append((at, asleep_s))
        return at

    def go_on_after(self, at: float) -> None:
        """See the function."""
        self._ahead_s += max(0.0, at - self.awake_s())

    def ago_s(self, at: float) -> float:
        """How long that is ago for people, time asleep included as far as this process has seen it."""
        now = self.awake_s()
        asleep_then_s = next(asleep_s for since, asleep_s in reversed(self._asleep) if since <= at)
        return now - at + self._asleep[-1][1] - asleep_then_s


_CLOCK: Final = Clock()


def awake_s() -> float:
    """Seconds in which the machine was awake (CLOCK_MONOTONIC): what every event carries as `at`.

    Deadlines are taken from it: in time asleep nobody could have kept one.
    """
    return _CLOCK.awake_s()


def go_on_after(at: float) -> None:
    """Be no earlier than `at`, which an earlier daemon of this boot has written, maybe by a clock that was ahead."""
    _CLOCK.go_on_after(at)


def wall_time(at: float) -> str:
    """`at` (of `awake_s`) as ISO 8601 in UTC, milliseconds included."""
    moment = time.time() - _CLOCK.ago_s(at)
    return datetime.fromtimestamp(moment, tz=UTC).isoformat(timespec="milliseconds")


def local(moment: str) -> datetime:
    """A time in ISO 8601 as this place's clocks show it."""
    return datetime.fromisoformat(moment).astimezone()


def local_time(moment: str) -> str:
    """The same as text, with its day: `21 Nov 14:05`."""
    return local(moment).strftime("%d %b %H:%M")
