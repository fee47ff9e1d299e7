"""How long a client asks again."""

from __future__ import annotations

import asyncio

import pytest

from nls_scheduler.client import patience
from nls_scheduler.client.patience import Patience
from nls_scheduler.wire.errors import DaemonUnreachable


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(patience, "LONGEST_PAUSE_S", 0.002)


def test_what_may_come_is_asked_for_until_it_comes_and_told_of_once() -> None:
    told: list[str] = []
    asked: list[str | None] = []
    waits = Patience(told.append)

    async def ask() -> str:
        asked.append(waits.sentence)
        if len(asked) < 4:
            raise DaemonUnreachable("away", may_come=True)
        return "here"

    assert asyncio.run(waits.until_answered(ask)) == "here"
    assert told == ["the node's daemon does not answer; waiting for it, for 30 s at most"]
    assert asked == [None, *told * 3]
    assert waits.sentence is None


def test_what_else_is_waited_for_is_told_as_well() -> None:
    told: list[str] = []
    awaited = ["", "somebody sleeps", "somebody sleeps"]

    async def ask() -> str:
        if awaited:
            raise DaemonUnreachable("away", may_come=True, awaited=awaited.pop(0))
        return "here"

    assert asyncio.run(Patience(told.append).until_answered(ask)) == "here"
    assert told == [
        "the node's daemon does not answer; waiting for it, for 30 s at most",
        "somebody sleeps; waiting for it, for 30 s at most",
    ]


def test_an_answer_that_is_late_is_told_of_once_while_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LATE_S", 0.0)
    told: list[str] = []

    async def story() -> None:
        late = asyncio.Event()

        def tell(sentence: str) -> None:
            told.append(sentence)
            late.set()

        async def ask() -> str:
            await late.wait()
            return waits.sentence or ""

        waits = Patience(tell)
        assert await waits.until_answered(ask, lambda: "it is stopped") == "it is stopped; waiting for it"
        assert waits.sentence is None

    asyncio.run(story())
    assert told == ["it is stopped; waiting for it"]


@pytest.mark.parametrize(("may_come", "waits"), [(False, False), (True, True)])
def test_what_does_not_come_is_said_at_once_or_in_the_end(*, may_come: bool, waits: bool) -> None:
    told: list[str] = []

    async def ask() -> None:
        raise DaemonUnreachable("nobody", may_come=may_come)

    with pytest.raises(DaemonUnreachable, match="nobody"):
        asyncio.run(Patience(told.append, within_s=0.02).until_answered(ask))
    assert bool(told) == waits
