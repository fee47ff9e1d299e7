"""Waiting for something in the supervisor's loop to change."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Changes:
    """Whoever changes what others may wait for announces it. Everything runs in one loop's thread."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def announce(self) -> None:
        """Have everybody who waits look again."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Until `holds()`, or the time is over. What `holds` raises ends the wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self._next()

    async def _next(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
