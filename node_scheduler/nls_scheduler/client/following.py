"""Follows a daemon for whoever looks at the node for longer: its status and its history, through its restarts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from nls_scheduler.client.daemon_client import DaemonClient

FIGURES_EVERY_S: Final = 1.0
RETRY_FIRST_S: Final = 0.2
RETRY_LONGEST_S: Final = 2.0
HISTORY_KEPT: Final = 200
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Look:
    """The node at one moment.

    Attributes:
        status: `GET /v1/status`; while the daemon is away, the last one that it gave, `None` before the first.
        history: the last `HISTORY_KEPT` entries of `GET /v1/history`, oldest first.
        trouble: why nothing newer is known; `None`: the status is that of now.
    """

    status: dict[str, Any] | None = None
    history: tuple[Entry, ...] = ()
    trouble: DaemonUnreachable | Problem | None = None


class Follower:
    """One follower; `async for look in follower.looks()`. It never starts a daemon.

    A look comes at once when something happens, and at least every `every_s` for what happens without an event: memory,
    cells, another request. Where the daemon goes, a look says why, and the next comes when one is there again.
    """

    def __init__(self, connect: Callable[[], Awaitable[DaemonClient]], *, every_s: float = FIGURES_EVERY_S) -> None:
        self._connect = connect
        self._every_s = every_s
        self._nudged = asyncio.Event()
        self._look = Look()

    def nudge(self) -> None:
        """Something was ordered: ask the daemon at once."""
        self._nudged.set()

    async def looks(self) -> AsyncGenerator[Look, None]:
        """Without end; close it to hang up."""
        pause_s = RETRY_FIRST_S
        while True:
            events: asyncio.Task[None] | None = None
            try:
                client = await self._connect()
                events = asyncio.get_running_loop().create_task(self._follow_events(client))
                self._look = Look(self._look.status, tuple((await client.history())[-HISTORY_KEPT:]))
                while not events.done():
                    self._nudged.clear()
                    self._look = Look(await client.status(), self._look.history)
                    yield self._look
                    pause_s = RETRY_FIRST_S
                    await self._next(events)
                await events  # it raises why it has ended
            except (DaemonUnreachable, Problem) as error:
                self._look = Look(self._look.status, self._look.history, error)
                yield self._look
            finally:
                await _ended(events)
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_LONGEST_S, pause_s * 2)

    async def _next(self, events: asyncio.Task[None]) -> None:
        nudged = asyncio.ensure_future(self._nudged.wait())
        await asyncio.wait({nudged, events}, timeout=self._every_s, return_when=asyncio.FIRST_COMPLETED)
        nudged.cancel()

    async def _follow_events(self, client: DaemonClient) -> None:
        async for entry in client.events():
            last = self._look.history[-1]["sequence"] if self._look.history else 0
            if entry["sequence"] <= last:
                continue  # it happened between the two questions, and is in the history already
            new: tuple[Entry, ...] = (*self._look.history, entry)
            if entry["sequence"] > last + 1:
                new = tuple(await client.history())
            self._look = Look(self._look.status, new[-HISTORY_KEPT:], self._look.trouble)
            self._nudged.set()


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError, DaemonUnreachable, Problem):
            await task
