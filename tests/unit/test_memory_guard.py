"""What goes before a container's memory is used up, and in which order."""

from __future__ import annotations

import asyncio
import errno
import itertools

import pytest

from nls_jupyter.saved_state import Manifest, SavedName
from nls_jupyter.supervisor.kept_state import SavedState
from nls_jupyter.supervisor.memory_guard import MemoryGuard, no_room
from nls_jupyter.supervisor.notices import NoticeLog
from nls_scheduler.wire.errors import DaemonUnreachable

LIMIT = 1000


class Process:
    killed = 0

    def kill(self, why: str) -> None:
        assert why.startswith("was ended so that the notebook could live: only ")
        self.killed += 1


class Keeper:
    def __init__(self, *, process: bool, saved: bool) -> None:
        self.process: Process | None = Process() if process else None
        self.saved: SavedState | None = SavedState((), Manifest(0, (), (), None)) if saved else None
        self.usable = process
        self.held_by_driver = False

    def give_back_saved(self) -> None:
        self.saved = None


@pytest.mark.parametrize(
    ("left", "process", "saved", "then_saved", "killed"),
    [
        (900, True, True, True, 0),
        (80, True, True, True, 0),
        (79, True, True, False, 0),
        (79, True, False, False, 0),
        (29, True, True, False, 0),
        (29, True, False, False, 1),
        (79, False, True, True, 0),
        (29, False, True, False, 0),
    ],
)
def test_the_saved_copy_goes_before_the_process_and_the_only_copy_goes_last(
    left: int, *, process: bool, saved: bool, then_saved: bool, killed: int
) -> None:
    keeper, log = Keeper(process=process, saved=saved), NoticeLog()
    low = MemoryGuard(keeper, log).check(left, LIMIT)
    assert low == (left < 80)
    assert (keeper.saved is not None) == then_saved
    assert (keeper.process.killed if keeper.process else 0) == killed
    assert len(log.unread) == (1 if killed or saved != then_saved else 0)


def test_what_a_process_is_still_bringing_back_is_kept_and_the_process_goes_first() -> None:
    keeper = Keeper(process=True, saved=True)
    keeper.usable = False
    MemoryGuard(keeper, NoticeLog()).check(1, LIMIT)
    assert keeper.saved is not None
    assert keeper.process is not None
    assert keeper.process.killed == 1


def test_what_nobody_could_bring_back_yet_is_kept_and_the_process_goes_first() -> None:
    keeper, log = Keeper(process=True, saved=True), NoticeLog()
    carried = (SavedName("model", "Model", 8, "cpu"),)
    keeper.saved = saved = SavedState((), Manifest(0, (), (), None, carried=carried))
    assert MemoryGuard(keeper, log).check(79, LIMIT)
    assert keeper.saved is saved
    assert not log.unread
    MemoryGuard(keeper, log).check(29, LIMIT)
    assert keeper.saved is saved
    assert keeper.process is not None
    assert keeper.process.killed == 1


def test_a_process_is_ended_once_however_long_it_takes_to_go() -> None:
    keeper = Keeper(process=True, saved=False)
    guard = MemoryGuard(keeper, NoticeLog())
    guard.check(1, LIMIT)
    guard.check(1, LIMIT)
    assert keeper.process is not None
    assert keeper.process.killed == 1


@pytest.mark.parametrize(("usable", "rests"), [(True, 1), (False, 0)])
def test_a_process_that_had_to_go_comes_back_with_the_next_cell_unless_one_waits_for_it(
    *, usable: bool, rests: int
) -> None:
    keeper, calls, rooms = Keeper(process=True, saved=False), [], iter([(1, LIMIT), (1, LIMIT), None])
    keeper.usable = usable

    async def rest() -> None:
        calls.append("rest")
        raise DaemonUnreachable("the daemon has gone")

    guard = MemoryGuard(keeper, NoticeLog(), lambda: next(rooms), rest)
    asyncio.run(asyncio.wait_for(guard.run(), 5))
    assert len(calls) == rests


@pytest.mark.parametrize(("room", "told"), [((79, LIMIT), True), ((80, LIMIT), False), (None, False)])
def test_no_process_starts_where_it_would_have_to_go_at_once(room: tuple[int, int] | None, *, told: bool) -> None:
    why = no_room(lambda: room)
    assert (why is not None) == told
    assert why is None or "79 B of this container's" in why


def test_where_nothing_limits_it_nothing_is_watched() -> None:
    rooms = iter([None])
    guard = MemoryGuard(Keeper(process=True, saved=True), NoticeLog(), lambda: next(rooms))
    asyncio.run(asyncio.wait_for(guard.run(), 5))
    assert list(rooms) == [], "it has looked once"


def test_what_could_not_be_looked_at_for_a_moment_is_watched_on() -> None:
    keeper, looks, rooms = Keeper(process=True, saved=True), itertools.count(), iter([(79, LIMIT), None])

    def room() -> tuple[int, int] | None:
        if next(looks) < 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return next(rooms)

    asyncio.run(asyncio.wait_for(MemoryGuard(keeper, NoticeLog(), room).run(), 10))
    assert keeper.saved is None, "what was due is given back"


def test_a_process_that_the_driver_holds_is_never_ended_here() -> None:
    keeper = Keeper(process=True, saved=False)
    keeper.held_by_driver = True
    assert MemoryGuard(keeper, NoticeLog()).check(1, LIMIT)
    assert keeper.process is not None
    assert keeper.process.killed == 0
