"""Whoever follows the daemon sees everything once, in order, through its restarts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from nls_scheduler.client.following import Follower
from nls_scheduler.wire.errors import DaemonUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nls_scheduler.client.daemon_client import DaemonClient

AWAY = DaemonUnreachable("It is away.", may_come=True)


class ScriptedDaemon:
    """What `happens` is history at once, and is told to followers."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.told: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.away = False

    async def connect(self) -> DaemonClient:
        if self.away:
            raise AWAY
        return cast("DaemonClient", self)

    def happens(self, sequence: int, *, told: bool = True) -> None:
        self.entries.append({"sequence": sequence})
        if told:
            self.told.put_nowait({"sequence": sequence})

    def goes(self) -> None:
        self.away = True
        self.told.put_nowait(None)

    async def status(self) -> dict[str, Any]:
        return {"entries": len(self.entries)}

    async def history(self) -> list[dict[str, Any]]:
        return list(self.entries)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        while (entry := await self.told.get()) is not None:
            yield entry
        raise AWAY


def test_entries_come_once_and_those_that_fell_between_two_questions_are_not_lost() -> None:
    async def story() -> None:
        daemon = ScriptedDaemon()
        daemon.happens(1)
        daemon.happens(2, told=False)
        async with aclosing(Follower(daemon.connect, every_s=60).looks()) as looks:
            assert [e["sequence"] for e in (await anext(looks)).history] == [1, 2]
            daemon.happens(3, told=False)
            daemon.happens(4)
            look = await anext(looks)
            assert [e["sequence"] for e in look.history] == [1, 2, 3, 4]
            assert look.status == {"entries": 4}

    asyncio.run(asyncio.wait_for(story(), 30))


def test_what_was_known_stays_while_the_daemon_is_away_and_it_is_said_why() -> None:
    async def story() -> None:
        daemon = ScriptedDaemon()
        daemon.happens(1)
        follower = Follower(daemon.connect, every_s=60)
        async with aclosing(follower.looks()) as looks:
            assert (await anext(looks)).trouble is None
            daemon.goes()
            look = await anext(looks)
            assert (look.trouble, look.status, len(look.history)) == (AWAY, {"entries": 1}, 1)
            daemon.away = False
            while (look := await anext(looks)).trouble is not None:
                assert look.status == {"entries": 1}
            assert look.status == {"entries": 1}
            follower.nudge()
            assert (await anext(looks)).trouble is None

    asyncio.run(asyncio.wait_for(story(), 30))
