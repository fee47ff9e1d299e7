"""Whoever follows the daemon sees everything once, in order, through its restarts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from nls_scheduler.client import following
from nls_scheduler.client.following import Follower
from nls_scheduler.wire.errors import DaemonUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest

    from nls_scheduler.client.daemon_client import DaemonClient

AWAY = DaemonUnreachable("It is away.", may_come=True)


class ScriptedDaemon:
    """What `happens` is history at once, and is told to followers; while it is `busy` also beside the history."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.followers: list[asyncio.Queue[dict[str, Any] | None]] = []
        self.busy = False
        self.stands_still = False
        self.away = False

    async def connect(self) -> DaemonClient:
        if self.away:
            raise AWAY
        return cast("DaemonClient", self)

    def happens(self) -> None:
        self.entries.append({"sequence": len(self.entries) + 1})
        self.tell(self.entries[-1])

    def goes(self) -> None:
        self.away = True
        self.tell(None)

    def tell(self, entry: dict[str, Any] | None) -> None:
        for follower in self.followers:
            follower.put_nowait(entry)

    async def status(self) -> dict[str, Any]:
        return {"entries": len(self.entries)}

    async def history(self) -> list[dict[str, Any]]:
        if self.stands_still:
            raise AWAY
        if self.busy:
            self.happens()
        told = list(self.entries)
        if self.busy:
            self.happens()
        return told

    async def events(self, *, passive: bool, began: Callable[[], object]) -> AsyncIterator[dict[str, Any]]:
        assert not passive
        told: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.followers.append(told)
        if self.stands_still:
            await asyncio.Future()
        began()
        while (entry := await told.get()) is not None:
            yield entry
        raise AWAY


def test_entries_come_once_and_those_that_fall_between_two_questions_are_not_lost() -> None:
    async def story() -> None:
        daemon = ScriptedDaemon()
        daemon.happens()
        daemon.busy = True
        async with aclosing(Follower(daemon.connect, every_s=60).looks()) as looks:
            while len((look := await anext(looks)).history) < 3:
                pass
            assert [e["sequence"] for e in look.history] == [1, 2, 3]
            daemon.happens()
            look = await anext(looks)
            assert [e["sequence"] for e in look.history] == [1, 2, 3, 4]
            assert look.status == {"entries": 4}

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_daemon_that_stands_still_when_it_is_to_be_followed_is_said_not_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "BEGINS_WITHIN_S", 0.001)

    async def story() -> None:
        daemon = ScriptedDaemon()
        daemon.stands_still = True
        async with aclosing(Follower(daemon.connect).looks()) as looks:
            assert (await anext(looks)).trouble is AWAY
            daemon.stands_still = False
            while (look := await anext(looks)).trouble is not None:
                assert look.trouble is AWAY

    asyncio.run(asyncio.wait_for(story(), 30))


def test_what_was_known_stays_while_the_daemon_is_away_and_it_is_said_why() -> None:
    async def story() -> None:
        daemon = ScriptedDaemon()
        daemon.happens()
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
