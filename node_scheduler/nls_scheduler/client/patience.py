"""How a client waits for a daemon that is away for a moment, started anew for one, or that has too many there now."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, TypeVar

from nls_scheduler.units.clock import monotonic_s
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WITHIN_S: Final = 30.0
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
LATE_S: Final = 2.0
"""A daemon that works has answered by then."""
LET_IN_WITHIN_S: Final = 60.0
T = TypeVar("T")


async def once_let_in(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` returns. Where the daemon says when to try again, it is asked again then, for LET_IN_WITHIN_S.

    Raises what `ask` raises.
    """
    until = monotonic_s() + LET_IN_WITHIN_S
    while True:
        try:
            return await ask()
        except Problem as refusal:
            wait_s = refusal.retry_after_s
            if wait_s is None or monotonic_s() + wait_s > until:
                raise
        await asyncio.sleep(wait_s * random.uniform(1.0, 1.5))  # noqa: S311 - spreads who waits, no secret


class Patience:
    """For one user of a daemon: asks again, with growing pauses, where a daemon is to be there or was a moment ago.

    Attributes:
        sentence: what is waited for, while it is.
    """

    def __init__(self, tell: Callable[[str], None], within_s: float = WITHIN_S) -> None:
        """`tell` is called in the loop with what is waited for, one sentence, and again with another one.

        Each wait is of `within_s` at most.
        """
        self._tell = tell
        self._within_s = within_s
        self.sentence: str | None = None

    async def until_answered(self, ask: Callable[[], Awaitable[T]], late: Callable[[], str] | None = None) -> T:
        """What `ask` returns, once it does. Raises what it raises, DaemonUnreachable when it is too late.

        `late` says what is known while an answer does not come.
        """
        loop = asyncio.get_running_loop()
        began, pause_s = loop.time(), FIRST_PAUSE_S
        try:
            while True:
                is_late = None if late is None else loop.call_later(LATE_S, self._tell_late, late)
                try:
                    return await ask()
                except DaemonUnreachable as away:
                    if not away.may_come or loop.time() - began > self._within_s:
                        raise
                    sentence = f"{away.awaited}; waiting for it, for {self._within_s:g} s at most"
                finally:
                    if is_late is not None:
                        is_late.cancel()
                self._say(sentence)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads clients, no secret
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        finally:
            self.sentence = None

    def _tell_late(self, late: Callable[[], str]) -> None:
        self._say(f"{late()}; waiting for it")

    def _say(self, sentence: str) -> None:
        if sentence != self.sentence:
            self.sentence = sentence
            self._tell(sentence)
