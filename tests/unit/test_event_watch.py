"""What the server hears of the node's events over the life of several daemons: each once, and none from before."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from nls_jupyter_server import event_watch
from nls_jupyter_server.event_watch import EventWatch
from nls_scheduler.wire.errors import DaemonUnreachable
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import pytest

WITHIN_S = 10.0
BEFORE = datetime.now(UTC) - timedelta(hours=1)


class FakeDaemon:
    """Its history, and whoever follows; `up` is whether it can be reached."""

    def __init__(self) -> None:
        self.up = True
        self.entries: list[dict[str, Any]] = []
        self.followers: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self.next = ""

    async def connect(self) -> Any:
        if not self.up:
            raise DaemonUnreachable("No daemon is running.")
        return self

    def close(self) -> None:
        """Of a client."""

    async def history(self) -> list[dict[str, Any]]:
        told = list(self.entries)
        if self.next:
            self.happens(self.next)
        return told

    async def events(self, *, passive: bool, began: Callable[[], object]) -> AsyncIterator[dict[str, Any]]:
        assert passive, "a daemon that nobody needs would never end"
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.followers.add(queue)
        began()
        while (entry := await queue.get()) is not None:
            yield entry
        raise DaemonUnreachable("it has ended")

    def happens(self, name: str, at: datetime | None = None) -> None:
        time = (at or datetime.now(UTC)).isoformat()
        self.entries.append({"sequence": len(self.entries) + 1, "time": time, "name": name})
        for queue in self.followers:
            queue.put_nowait(self.entries[-1])

    def stop(self) -> None:
        self.up = False
        for queue in self.followers:
            queue.put_nowait(None)
        self.followers.clear()


def story(
    monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon, tell: Callable[[EventWatch, list[str]], Awaitable[None]]
) -> None:
    """Run `tell` beside a watch of `daemon`, with the names that were told."""
    monkeypatch.setattr(event_watch, "RETRY_FIRST_S", 0.001)

    async def told() -> None:
        names: list[str] = []
        watch = EventWatch(cast("Any", daemon.connect), lambda e: names.append(e["name"]), logging.getLogger("test"))
        watch.start()
        try:
            await tell(watch, names)
        finally:
            await watch.close()

    asyncio.run(asyncio.wait_for(told(), 30.0))


async def so(holds: Callable[[], bool]) -> None:
    async def holding() -> bool:
        return holds()

    await eventually(holding, WITHIN_S)


def test_what_happened_before_the_server_is_not_told_and_everything_after_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = FakeDaemon()
    daemon.happens("before", BEFORE)

    async def tell(watch: EventWatch, names: list[str]) -> None:
        await so(lambda: watch.following.is_set() and bool(daemon.followers))
        daemon.happens("first")
        daemon.happens("second")
        await so(lambda: len(names) == 2)
        assert names == ["first", "second"]

    story(monkeypatch, daemon, tell)


def test_a_daemon_that_comes_later_and_again_is_followed_and_what_was_missed_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = FakeDaemon()
    daemon.stop()

    async def tell(watch: EventWatch, names: list[str]) -> None:
        daemon.happens("while nobody listened")
        assert not watch.following.is_set()
        assert not watch.met.is_set()
        daemon.up = True
        await so(lambda: names == ["while nobody listened"] and bool(daemon.followers))
        daemon.stop()
        await so(lambda: not watch.following.is_set())
        assert watch.met.is_set()
        daemon.happens("meanwhile")
        daemon.up = True
        await so(lambda: names[1:] == ["meanwhile"] and bool(daemon.followers))
        daemon.happens("afterwards")
        await so(lambda: names[2:] == ["afterwards"])

    story(monkeypatch, daemon, tell)


def test_a_daemon_without_its_journal_counts_from_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = FakeDaemon()

    async def tell(watch: EventWatch, names: list[str]) -> None:
        await so(lambda: watch.following.is_set() and bool(daemon.followers))
        for name in ("one", "two"):
            daemon.happens(name)
        await so(lambda: len(names) == 2)
        daemon.stop()
        daemon.entries.clear()
        daemon.happens("anew")
        daemon.up = True
        await so(lambda: names[2:] == ["anew"] and bool(daemon.followers))
        daemon.happens("again")
        await so(lambda: names[3:] == ["again"])

    story(monkeypatch, daemon, tell)


def test_what_happens_while_the_history_is_told_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = FakeDaemon()
    daemon.next = "meanwhile"

    async def tell(watch: EventWatch, names: list[str]) -> None:
        await so(lambda: names == ["meanwhile"])
        daemon.happens("afterwards")
        await so(lambda: names == ["meanwhile", "afterwards"])

    story(monkeypatch, daemon, tell)


def test_what_nobody_foresaw_ends_no_watch_and_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    daemon, connect, failed = FakeDaemon(), FakeDaemon.connect, []

    async def odd(self: FakeDaemon) -> Any:
        if not failed:
            failed.append(self)
            raise ArithmeticError("of a kind that nobody foresaw")
        return await connect(self)

    async def tell(watch: EventWatch, names: list[str]) -> None:
        await so(lambda: watch.following.is_set() and bool(daemon.followers))
        daemon.happens("afterwards")
        await so(lambda: names == ["afterwards"])

    monkeypatch.setattr(FakeDaemon, "connect", odd)
    story(monkeypatch, daemon, tell)
    assert "ArithmeticError" in caplog.text
