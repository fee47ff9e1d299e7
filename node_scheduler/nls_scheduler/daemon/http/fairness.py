"""No user keeps the others waiting: of what one user asks at once, each is begun after others had their turn."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nls_scheduler.daemon.bounds import User
    from nls_scheduler.daemon.http.answering import Answering

LONG_S: Final = 0.005
"""What takes longer is followed by a pause as long, so that half of the daemon's time is left to others."""
ALONE_S: Final = 1.0
"""Who has been the only one for so long has the daemon for itself."""


class Fairness:
    """One line for each user; the lines do not wait for one another.

    What the daemon does for a request it mostly does in one go: nothing else is done meanwhile. So it is enough when a
    request begins that the next of its user waits until the loop has turned, which shows it what others ask.
    """

    def __init__(self) -> None:
        self._last: dict[User, asyncio.Future[None]] = {}
        self._latest: User | None = None
        self._shared_at = -math.inf

    async def begin(self, user: User) -> None:
        """Wait behind what `user` has asked before; where that is done, nobody waits."""
        loop, before = asyncio.get_running_loop(), self._last.get(user)
        if user != self._latest:
            self._latest, self._shared_at = user, time.perf_counter()
        mine = self._last[user] = loop.create_future()
        try:
            if before is not None:
                await asyncio.shield(before)
        finally:
            loop.call_soon(self._done, user, mine, time.perf_counter())

    def _done(self, user: User, mine: asyncio.Future[None], began: float) -> None:
        now = time.perf_counter()
        taken_s = now - began
        if taken_s < LONG_S or now - self._shared_at > ALONE_S:
            self._next(user, mine)
        else:
            asyncio.get_running_loop().call_later(taken_s, self._next, user, mine)

    def _next(self, user: User, mine: asyncio.Future[None]) -> None:
        mine.set_result(None)
        if self._last.get(user) is mine:  # who was cancelled ended before those in front of it
            del self._last[user]


def in_line(method: Callable[..., Awaitable[None] | None]) -> Callable[..., Awaitable[None]]:
    """A handler's method, begun when it is its user's turn."""

    @functools.wraps(method)
    async def when_it_is_its_turn(self: Answering, *arguments: Any) -> None:
        if self.peer is not None:
            process = self.peer.process
            tenant = "" if process is None else self.daemon.tenant_of(process.pid)
            await self.fairness.begin((self.peer.uid, tenant))
        answered = method(self, *arguments)
        if answered is not None:
            await answered

    return when_it_is_its_turn
