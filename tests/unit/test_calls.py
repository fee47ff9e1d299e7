"""Ctrl-C for one cell, however far that is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from nls_jupyter.supervisor import calls
from nls_jupyter.supervisor.calls import Call


class FakeKeeper:
    """Counts what it is told."""

    def __init__(self, *, saving: bool = False) -> None:
        self.interrupts = 0
        self.stops = 0
        self.saves = SimpleNamespace(active=saving, stop=self._stop)

    def _stop(self) -> None:
        self.stops += 1

    def interrupt(self) -> None:
        self.interrupts += 1


async def forever(call: Call) -> None:
    call.begin()
    await asyncio.Event().wait()


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
    assert task.cancelled()


def test_a_cell_that_was_interrupted_before_anybody_waited_for_it_does_not_begin() -> None:
    async def story() -> None:
        call, keeper = Call(), FakeKeeper()
        assert call.interrupt(keeper) == 0  # type: ignore[arg-type]
        await _ended(asyncio.create_task(forever(call)))
        assert keeper.interrupts == 0

    asyncio.run(story())


@pytest.mark.parametrize("saving", [False, True])
def test_the_wait_of_a_cell_ends_at_once_and_with_it_the_save_that_it_waits_for(saving: bool) -> None:
    async def story() -> None:
        call, keeper = Call(), FakeKeeper(saving=saving)
        waiter = asyncio.create_task(forever(call))
        await asyncio.sleep(0)
        assert call.interrupt(keeper) == 0  # type: ignore[arg-type]
        await _ended(waiter)
        assert (keeper.interrupts, keeper.stops) == (0, int(saving))
        assert not call.left_alone

    asyncio.run(story())


def test_only_the_cell_that_was_interrupted_three_times_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_REACTS_WITHIN_S", 0.0)

    async def story() -> None:
        keeper = FakeKeeper()
        mine, others = Call(), Call()
        waiters = [asyncio.create_task(forever(call)) for call in (mine, others)]
        await asyncio.sleep(0)
        mine.work = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
        assert [mine.interrupt(keeper) for _ in range(2)] == [1, 2]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert not any(waiter.done() for waiter in waiters)
        assert mine.interrupt(keeper) == 3  # type: ignore[arg-type]
        await _ended(waiters[0])
        assert mine.left_alone
        assert keeper.interrupts == 3
        assert not waiters[1].done()
        waiters[1].cancel()
        mine.work.cancel()

    asyncio.run(story())


def test_a_cell_that_is_over_is_not_interrupted() -> None:
    async def story() -> None:
        call, keeper = Call(), FakeKeeper()
        call.work = asyncio.create_task(asyncio.sleep(0))  # type: ignore[arg-type]
        await call.work
        assert call.interrupt(keeper) == 0  # type: ignore[arg-type]
        assert keeper.interrupts == 0

    asyncio.run(story())
