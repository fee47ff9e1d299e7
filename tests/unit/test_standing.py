"""A cell is frozen only after its process has said that nothing is known against it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.supervisor import standing as module
from nls_jupyter.supervisor.freezer import Lost
from nls_jupyter.supervisor.notices import NoticeLog
from nls_jupyter.supervisor.pending import RequestFailed
from nls_jupyter.supervisor.standing import Standing
from nls_scheduler.wire.protocol import CommandMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ORDER = CommandMessage("freeze_process", 3, "because", timeout_s=8.0, beside_bytes=5)
VIEW = {"memory_used_bytes": 7, "gpus": ["GPU 0"]}


async def says_nothing() -> str | None:
    return await asyncio.Event().wait()  # type: ignore[return-value]  # never


async def nothing_against_it() -> str | None:
    return None


async def managed_memory() -> str | None:
    return "it uses managed memory"


async def fails() -> str | None:
    raise RequestFailed({"ename": "OSError", "evalue": "no maps"})


class Book:
    """A notebook whose cell runs in a process that answers so, and what the daemon is told."""

    def __init__(self, answers: Callable[[], Awaitable[str | None]]) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.frozen: list[tuple[float, int, int]] = []
        self.ended: list[str] = []
        self.lost = False

        async def why_not_frozen(*, timeout_s: float) -> str | None:
            async with asyncio.timeout(timeout_s):
                return await answers()

        async def freeze(_: object, timeout_s: float, held_bytes: int, beside_bytes: int) -> int:
            self.frozen.append((timeout_s, held_bytes, beside_bytes))
            if self.lost:
                raise Lost("the process has ended")
            return held_bytes

        async def thaw(*_: object) -> None:
            pass

        async def end(reason: str) -> None:
            self.ended.append(reason)

        async def tell(event: str, **fields: Any) -> None:
            self.told.append((event, fields))

        async def too_old() -> str:
            return "the GPU driver is older than 570"

        self.keeper: Any = SimpleNamespace(
            process=SimpleNamespace(why_not_frozen=why_not_frozen, alive=True),
            executing=True,
            still_usable=lambda: True,
            freezer=SimpleNamespace(freeze=freeze, thaw=thaw, why_not=too_old),
        )
        self.log = NoticeLog()
        self.standing = Standing(self.keeper, self.log, tell, end, lambda: None)

    def is_shown(self) -> None:
        self.keeper.usable = True
        asyncio.run(self.standing.test({"freezes": True}))

    def is_ordered(self) -> None:
        asyncio.run(self.standing.freeze(ORDER, VIEW))


def test_one_that_knows_of_nothing_is_frozen_within_what_is_left_of_its_time() -> None:
    book = Book(nothing_against_it)
    book.is_ordered()
    ((timeout_s, *bytes_),) = book.frozen
    assert 0.0 < timeout_s <= 8.0
    assert bytes_ == [7, 5]
    assert book.told == [("process_frozen", {"command_id": 3, "frozen_bytes": 7})]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (managed_memory, "it uses managed memory"),
        (says_nothing, "the GPU process did not say within 0.0 s what it uses of the GPU"),
        (fails, "the GPU process could not say what it uses of the GPU: OSError: no maps"),
    ],
)
def test_one_that_says_why_not_or_nothing_at_all_is_left_as_it_is(
    answers: Callable[[], Awaitable[str | None]], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAYS_WITHIN_S", 0.01)
    book = Book(answers)
    book.is_ordered()
    assert book.frozen == []
    assert book.told == [("freeze_failed", {"command_id": 3, "reason": reason})]


def test_each_daemon_is_told_once_of_the_trial_and_the_user_once_of_a_process() -> None:
    book, told = Book(nothing_against_it), ("freeze_tested", {"refusal": "the GPU driver is older than 570"})
    for _ in range(2):
        book.is_shown()
        book.is_shown()
        book.standing.reported()
    assert book.told == [told, told]
    assert len(book.log.entries) == 1


@pytest.mark.parametrize("alive", [True, False])
def test_one_that_is_lost_is_ended_and_the_end_of_one_that_has_ended_is_told_by_others(alive: bool) -> None:
    book = Book(nothing_against_it)
    book.lost, book.keeper.process.alive = True, alive
    book.is_ordered()
    assert bool(book.ended) == alive
    assert book.told == []


def test_a_clock_that_is_set_back_changes_nothing_of_how_long_a_cell_has_stood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall_s, passed_s = 1e9, 50.0
    monkeypatch.setattr(module, "wall_s", lambda: wall_s)
    monkeypatch.setattr(module, "monotonic_s", lambda: passed_s)
    book = Book(nothing_against_it)
    book.is_ordered()
    wall_s, passed_s = wall_s - 25_200, passed_s + 12
    stands = book.standing.stands
    assert stands is not None
    assert (stands.at, stands.seconds) == (1e9, 12.0)
    asyncio.run(book.standing.thaw(ORDER))
    assert book.log.entries[-1].text == "The cell goes on after 12 s."
