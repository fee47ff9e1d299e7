"""How often the driver asks, and what becomes of work in the background in which something unforeseen happens."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds.

    Attributes:
        spread_s: before the first list up to this long, so that not all nodes come at once for what all ask for.
        watch_s: a watch is asked to end after about this long.
        slack_s: and given up this much later.
        stands_s: one that ended sooner failed, whatever it said: what is between may end each at once.
        least_s: the first back-off.
        most_s: the longest.
        absent_s: between two looks for a kind of object that this cluster does not have.
        refused_s: so long is a refusal no decision: a server that starts refuses all until it has read the roles.
        beat_s: between two reads that only ask whether the server still answers.
        answer_s: so long may it take for one; a frozen server is noticed within the sum of both.
    """

    spread_s: float = 30.0
    watch_s: float = 300.0
    slack_s: float = 15.0
    stands_s: float = 10.0
    least_s: float = 0.2
    most_s: float = 30.0
    absent_s: float = 300.0
    refused_s: float = 10.0
    beat_s: float = 8.0
    answer_s: float = 4.0

    def back_off_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        longest_s = min(self.most_s, self.least_s * 2.0 ** min(failures, 20))
        return random.uniform(self.least_s / 2, longest_s)  # noqa: S311 - spreads load, keeps no secret

    def pause_s(self, failures: int, asked_s: float | None) -> float:
        """The same where the server asks to be left alone for `asked_s`, as far as that is to be believed."""
        return max(self.back_off_s(failures), min(asked_s or 0.0, 10 * self.most_s))


class Rounds:
    """Work that is done again and again and never ends for good: what nobody foresaw is told, and a round is missed."""

    def __init__(self, work: str, pace: Pace | None = None) -> None:
        """`work`: what is done, as the beginning of a sentence."""
        self._work = work
        self._pace = pace or Pace()
        self._failures = 0
        self.trouble: str | None = None
        """The defect that stopped the last round, as a sentence; `None`: it was done."""

    async def go_on(self, a_round: Callable[[], Awaitable[None]]) -> None:
        """One after another until cancelled."""
        while True:
            try:
                await a_round()
            except Exception as error:  # noqa: BLE001 - told below
                await asyncio.sleep(self._failed(error))
            else:
                self._done()

    def once(self, a_round: Callable[[], None]) -> float | None:
        """One now; how many seconds to wait before the next where it has raised what nobody foresaw."""
        try:
            a_round()
        except Exception as error:  # noqa: BLE001 - told below
            return self._failed(error)
        self._done()
        return None

    def _done(self) -> None:
        self._failures, self.trouble = 0, None

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        why = f"{self._work} failed and is tried again, please report it: {type(error).__name__}: {error}"[:1000]
        if why != self.trouble:
            log.error("DEFECT: %s", why, exc_info=error)
        self.trouble = why
        return self._pace.back_off_s(self._failures)
