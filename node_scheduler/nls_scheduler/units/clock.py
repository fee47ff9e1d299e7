"""The daemon's two clocks: CLOCK_BOOTTIME for decisions, the wall clock for people."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def boottime_s() -> float:
    """Seconds since boot, time asleep included: what every event carries as `at`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_time(at: float) -> str:
    """`at` (CLOCK_BOOTTIME) as ISO 8601 in UTC, milliseconds included."""
    moment = datetime.now(tz=UTC).timestamp() - (boottime_s() - at)
    return datetime.fromtimestamp(moment, tz=UTC).isoformat(timespec="milliseconds")


def local_time(moment: str) -> str:
    """A time in ISO 8601 as this place's clocks show it, with its day: `21 Nov 14:05`."""
    return datetime.fromisoformat(moment).astimezone().strftime("%d %b %H:%M")
