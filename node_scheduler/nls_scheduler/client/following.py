"""Follows a daemon for whoever looks at the node for longer: its status and its history, through its restarts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from nls_scheduler.client.daemon_client import DaemonClient

FIGURES_EVERY_S: Final = 1.0
RETRY_FIRST_S: Final = 0.2
RETRY_LONGEST_S: Final = 2.0
HISTORY_KEPT: Final = 200
BEGINS_WITHIN_S: Final = 5.0
"""A daemon that has not begun to tell its events by then is asked whether it answers at all."""
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


@asynccontextmanager
async def all_that_happens(
    client: DaemonClient, *, passive: bool = False
) -> AsyncIterator[tuple[list[Entry], AsyncIterator[Entry]]]:
    """What has happened on the node, oldest first, and what happens from then on: each entry is in one of the two.

    `passive`: see `DaemonClient.events`. Raises DaemonUnreachable and Problem, in the second as well.
    """
    heard: asyncio.Queue[Entry | None] = asyncio.Queue()
    began = asyncio.Event()

    async def hear() -> None:
        try:
            async for entry in client.events(passive=passive, began=began.set):
                heard.put_nowait(entry)
        finally:
            began.set()
            heard.put_nowait(None)

    async def coming(last: int) -> AsyncIterator[Entry]:
        while (entry := await heard.get()) is not None:
            if entry["sequence"] > last:  # else it happened between the two questions
                yield entry
        await hearing

    hearing = asyncio.get_running_loop().create_task(hear())
    try:
        follows = False
        while not follows:
            with suppress(TimeoutError):
                await asyncio.wait_for(began.wait(), BEGINS_WITHIN_S)
            follows = began.is_set()
            history = await client.history()  # raises where nobody answers
        yield history, coming(history[-1]["sequence"] if history else 0)
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


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
                async with all_that_happens(client) as (history, coming):
                    self._look = Look(self._look.status, tuple(history[-HISTORY_KEPT:]))
                    events = asyncio.get_running_loop().create_task(self._hear(coming))
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

    async def _hear(self, coming: AsyncIterator[Entry]) -> None:
        async for entry in coming:
            history = (*self._look.history, entry)[-HISTORY_KEPT:]
            self._look = Look(self._look.status, history, self._look.trouble)
            self._nudged.set()


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError, DaemonUnreachable, Problem):
            await task
