"""When a user is there: working days of their own hours, with meetings and without nights and weekends.

Percentiles of cells and gaps alone give sessions that compute for half of their lives; what is missing are absences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
DAY_BEGINS_H: Final = (4.0, 20.0)
"""Users begin their days anywhere between: those of a public cluster are not in one country."""
WORK_H: Final = (8.0, 10.0)
ABSENCES_A_DAY: Final = 3
ABSENCE_MIN: Final = (30.0, 145.0)
"""Lunch, meetings: as long as the published gaps between the 90th and the 95th percentile, and some shorter."""
WORKING_DAYS: Final = 6


class Presence:
    """The hours of one user: windows of seconds in which cells are started, in order, without end."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._begins_s = chance.uniform(*DAY_BEGINS_H) * HOUR_S
        self._first_day_off = chance.randrange(7)
        self._day = -1
        self._windows: list[tuple[float, float]] = []

    def from_then(self, at_s: float) -> float:
        """`at_s`, or when the user is next there; never earlier than a time that was asked for before."""
        while True:
            while self._windows and self._windows[0][1] <= at_s:
                self._windows.pop(0)
            if self._windows:
                return max(at_s, self._windows[0][0])
            self._add_day()

    def _add_day(self) -> None:
        chance, day = self._chance, self._day
        self._day += 1
        begin_s = day * DAY_S + self._begins_s + chance.gauss(0.0, 0.5) * HOUR_S
        end_s = begin_s + chance.uniform(*WORK_H) * HOUR_S
        absences = sorted(
            (chance.uniform(begin_s, end_s), chance.uniform(*ABSENCE_MIN) * 60) for _ in range(ABSENCES_A_DAY)
        )
        if (day + self._first_day_off) % 7 >= WORKING_DAYS:
            return
        for away_s, length_s in absences:
            if away_s > begin_s:
                self._windows.append((begin_s, away_s))
            begin_s = max(begin_s, away_s + length_s)
        if end_s > begin_s:
            self._windows.append((begin_s, end_s))
