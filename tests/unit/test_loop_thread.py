from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from nls_jupyter.supervisor.changes import Changes
from nls_jupyter.supervisor.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    running = LoopThread("test")
    yield running
    running.stop()
    assert not running.alive


async def where() -> str:
    return threading.current_thread().name


def test_work_is_done_in_the_thread(thread: LoopThread) -> None:
    assert thread.call(where()) == "test"
    done = threading.Event()
    thread.soon(done.set)
    assert done.wait(5)


def test_what_work_raises_reaches_the_caller(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        thread.call(fail())


def test_work_that_is_not_waited_for_any_more_is_cancelled(thread: LoopThread) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        thread.call(wait(), 0.01)
    assert cancelled.wait(5)


def test_stopping_ends_what_is_left_and_is_idempotent() -> None:
    thread = LoopThread("test")
    future = thread.submit(asyncio.sleep(600))
    thread.stop()
    thread.stop()
    assert future.cancelled()


def test_a_timer_fires_also_where_a_cell_has_frozen_the_clock(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    assert thread.submit(asyncio.sleep(0.01, "awake")).result(5) == "awake"


def test_an_announced_change_is_seen_at_once() -> None:
    async def story() -> None:
        changes, facts = Changes(), []
        waiting = asyncio.create_task(changes.until(lambda: bool(facts), 60))
        await asyncio.sleep(0)
        changes.announce()
        await asyncio.sleep(0)
        facts.append(1)
        changes.announce()
        await asyncio.wait_for(waiting, 5)

    asyncio.run(story())


def test_a_change_that_does_not_come_is_not_waited_for_any_longer() -> None:
    looks: list[int] = []
    asyncio.run(asyncio.wait_for(Changes().until(lambda: bool(looks.append(1)), 0.01), 5))  # type: ignore[func-returns-value]
    assert looks == [1], "it looks again only when somebody announces a change"


def test_what_the_condition_raises_ends_the_wait() -> None:
    def fails() -> bool:
        raise ValueError("hopeless")

    with pytest.raises(ValueError, match="hopeless"):
        asyncio.run(Changes().until(fails, 60))
