"""The keeper with a GPU process made of promises."""

from __future__ import annotations

import asyncio
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.saved_state import WAITS, Manifest
from nls_jupyter.saved_state.manifest import ChangedName, MissingName, SavedName
from nls_jupyter.supervisor import coming_back, saving
from nls_jupyter.supervisor import keeper as module
from nls_jupyter.supervisor.keeper import EndedInCell, Keeper
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied, LaunchFailed
from nls_jupyter.supervisor.pending import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

KILLED = ExitStatus(returncode=None, signal=9)
DONE = {"content": {"status": "ok"}}
STOPPED = RequestFailed({"ename": "SaveStoppedError", "evalue": ""})


class FakeProcess:
    """Answers when told to."""

    pid = 1
    alive = True

    launching: asyncio.Event | None = None
    on_save_point: Any = None
    missing: Sequence[dict[str, Any]] = ()
    carried: Sequence[str] = ()
    dies_of: str | None = None
    restored_last: str | None = None
    deaths: Mapping[str, int] | None = None
    leaves = 0

    def __init__(self) -> None:
        self.exited: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.saving: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.reclaimed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.reclaims: list[tuple[str, float]] = []
        self.numbered = 0
        self.stops: list[int] = []
        self.begun = {"m"}
        self.budgets: list[bool] = []
        self.lacks_room: list[MissingName] = []
        self.too_much = self.can_be_copied = self.refuses_copies = False
        self.copies: list[tuple[str | None, asyncio.Future[str]]] = []

    @classmethod
    async def launch(cls, on_save_point: Any = None, **_: Any) -> FakeProcess:
        if cls.launching is not None:
            await cls.launching.wait()
        process = cls()
        process.on_save_point = on_save_point
        return process

    async def ready(self) -> None:
        if self.exited.done():
            raise LaunchFailed("it ended")

    async def follow_allowance(self, allowance_bytes: int) -> None:
        pass

    async def restore(self, descriptors: tuple[int, ...], deaths: Mapping[str, int] | None = None) -> dict[str, Any]:
        self.deaths = deaths
        if self.dies_of is not None and self.dies_of not in (deaths or {}):
            self.restored_last = self.dies_of
            raise GpuProcessDied(KILLED)
        for descriptor in descriptors:
            os.fstat(descriptor)
        return {"restored": ["x"], "missing": self.missing, "carried": self.carried, "changed": []}

    async def reclaim(self, reason: str, grace_s: float) -> bool:
        self.reclaims.append((reason, grace_s))
        return bool(await asyncio.shield(self.reclaimed))

    async def execute(self, code: str, **_: Any) -> Any:
        assert code
        return await asyncio.shield(self.reply)

    def began_last(self, msg_id: str) -> bool:
        return msg_id in self.begun

    def next_save(self) -> int:
        self.numbered += 1
        return self.numbered

    async def save(
        self, *, cell: str | None, number: int | None = None, within_budget: bool = False
    ) -> tuple[tuple[int, ...], Manifest]:
        self.budgets.append(within_budget)
        if within_budget and self.too_much:
            raise RequestFailed({"ename": "OverBudgetError", "evalue": ""})
        if number is not None and number <= max(self.stops, default=0):
            raise STOPPED
        await asyncio.shield(self.saving)
        saved = (SavedName("x", "int", 1, "host"),)
        missing = (MissingName("gen", "generator", "no"), *self.lacks_room)
        changed = (ChangedName("x", "int", "without its graph"),)
        left = self.leaves if within_budget else 0
        return (os.memfd_create("saved"),), Manifest(1, saved, missing, cell, changed, left=left)

    async def save_aside(self, *, cell: str | None) -> asyncio.Future[str]:
        if self.refuses_copies:
            self.can_be_copied = False
            raise RequestFailed({"ename": "NotAsideError", "evalue": "no"})
        assert not self.copies or self.copies[-1][1].done(), "one at a time"
        self.copies.append((cell, asyncio.get_running_loop().create_future()))
        return self.copies[-1][1]

    def stop_saves(self, number: int) -> None:
        self.stops.append(number)
        if number >= self.numbered and not self.saving.done():
            self.saving.set_exception(STOPPED)

    async def flush_files(self) -> None:
        """Nothing is written."""

    def kill(self, why: str | None = None) -> None:
        if not self.exited.done():
            self.dies(why)

    def dies(self, why: str | None = None) -> None:
        status = replace(KILLED, why=why)
        for promise in (self.reply, self.saving, self.reclaimed):
            if not promise.done():
                promise.set_exception(GpuProcessDied(status))
                promise.exception()
        self.exited.set_result(status)


class Story:
    def __init__(self) -> None:
        self.own_ends: list[Any] = []
        self.statuses: list[ExitStatus] = []
        self.save_points: list[Any] = []
        self.ended = asyncio.Event()
        self.keeper = Keeper(lambda: Path("/nowhere"), lambda _: None, self._own_end, self._save_point)
        self.failures: list[str] = []
        self.saves = 0

    async def _own_end(self, process: Any, status: ExitStatus) -> None:
        assert status.signal == KILLED.signal
        self.statuses.append(status)
        self.own_ends.append(process)
        self.ended.set()

    async def _save_point(self, saved: Any) -> None:
        self.save_points.append(saved)

    async def start(self) -> Any:
        process = await self.keeper.launch({})
        await self.keeper.bring_back(process, None)
        return process

    async def saved(self, _: Any) -> None:
        self.saves += 1

    def begin(self, msg_id: str = "m", *, cell: str = "[1]", then: Any = None) -> asyncio.Task[Any]:
        return self.keeper.begin("1", then or self.nothing, msg_id=msg_id, cell=cell)

    def save_soon(self) -> None:
        self.keeper.save_soon("[1]", self.saved, self.failures.append, lambda: None)

    async def nothing(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "GpuProcess", FakeProcess)
    for name, value in (("launching", None), ("missing", ()), ("carried", ())):
        monkeypatch.setattr(FakeProcess, name, value)
    return


def play(story: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        it = Story()
        try:
            await asyncio.wait_for(story(it), 10)
        finally:
            await it.keeper.end("the test is over")
            it.keeper.drop_saved()

    asyncio.run(whole())


def test_what_ended_by_itself_is_told_before_another_takes_its_place() -> None:
    """As after a kernel stood still: the order to start the next one comes before it has heard of the end."""

    async def story(it: Story) -> None:
        process = await it.start()
        process.alive = False
        launch = asyncio.create_task(it.keeper.launch({}))
        await asyncio.sleep(0)
        if not process.exited.done():
            process.dies()
        another = await launch
        assert it.own_ends == [process]
        assert it.keeper.process is another

    play(story)


def test_an_end_in_the_middle_of_a_launch_ends_what_was_launched() -> None:
    async def story(it: Story) -> None:
        FakeProcess.launching = asyncio.Event()
        launch = asyncio.create_task(it.keeper.launch({}))
        await asyncio.sleep(0)
        end = asyncio.create_task(it.keeper.end("stopped"))
        await asyncio.sleep(0)
        assert not end.done()
        FakeProcess.launching.set()
        process = await launch
        assert await end is process
        assert it.keeper.process is None
        with pytest.raises(LaunchFailed):
            await it.keeper.bring_back(process, None)
        assert not it.keeper.usable

    play(story)


def test_a_process_that_dies_in_a_cell_is_not_usable_from_that_moment_on() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        cell = it.begin()
        assert it.keeper.executing
        process.reply.set_exception(GpuProcessDied(KILLED))
        with pytest.raises(EndedInCell) as ended:
            await cell
        assert ended.value.ordered is None
        assert not it.keeper.executing
        assert not it.keeper.usable

    play(story)


def test_an_ordered_end_in_mid_cell_says_why() -> None:
    async def story(it: Story) -> None:
        await it.start()
        cell = it.begin()
        await asyncio.sleep(0)
        await it.keeper.end("bob needs GPU 0")
        with pytest.raises(EndedInCell) as ended:
            await cell
        assert ended.value.ordered == "bob needs GPU 0"
        assert it.own_ends == []

    play(story)


def test_an_end_of_its_own_is_told_once() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.dies()
        await it.ended.wait()
        assert it.own_ends == [process]
        assert it.keeper.process is None

    play(story)


def test_a_cell_goes_on_when_nobody_waits_for_it() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        over = asyncio.Event()

        async def then() -> None:
            over.set()

        cell = it.begin(then=then)
        waiter = asyncio.create_task(_shielded(cell))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.sleep(0)
        assert it.keeper.executing
        process.reply.set_result(DONE)
        await over.wait()
        assert not it.keeper.executing

    play(story)


async def turns(holds: Callable[[], bool]) -> None:
    """Let the loop turn until it is so."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was so")


async def _shielded(task: asyncio.Task[Any]) -> None:
    await asyncio.shield(task)


def test_a_failed_save_leaves_the_state_that_was_saved_before() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        before = await it.keeper.save("[1]")
        process.saving = asyncio.get_running_loop().create_future()
        it.save_soon()
        await turns(lambda: len(process.budgets) == 2)
        it.keeper.saves.stop()
        await it.keeper.saves.until_over()
        assert it.keeper.saved is before
        assert it.failures == ["it was interrupted"]
        os.fstat(before.descriptors[0])

    play(story)


DEAD = RequestFailed({"ename": "DeadGpuError", "evalue": "an illegal memory access was encountered"})


@pytest.mark.parametrize("how", ["after a cell", "suspend"])
def test_a_process_whose_gpu_is_dead_to_it_is_ended_and_what_was_saved_stands(how: str) -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        before = await it.keeper.save("[1]")
        process.saving = asyncio.get_running_loop().create_future()
        process.saving.set_exception(DEAD)
        if how == "suspend":
            with pytest.raises(GpuProcessDied):
                await it.keeper.suspend()
        else:
            it.save_soon()
            await it.keeper.saves.until_over()
        await it.ended.wait()
        assert (it.keeper.saved, it.keeper.usable, it.keeper.process, it.failures) == (before, False, None, [])
        (status,) = it.statuses
        assert status.describe() == (
            "was ended, as its GPU answers it no more since an error (an illegal memory access was encountered)"
        )

    play(story)


def test_a_save_that_takes_long_is_told_while_it_lasts_and_one_that_does_not_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(it: Story) -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        it.keeper.on_notice = told.put_nowait
        process = await it.start()
        it.save_soon()
        process.saving.set_result(None)
        await it.keeper.saves.until_over()
        assert told.empty()
        monkeypatch.setattr(saving, "_LATE_S", 0.0)
        process.saving = asyncio.get_running_loop().create_future()
        it.save_soon()
        text = await told.get()
        assert text.startswith("The variables are being saved after cell [1] for more than 0 s: ")
        process.saving.set_result(None)
        await it.keeper.saves.until_over()
        assert it.saves == 2

    play(story)


def test_a_save_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "TIMEOUT_S", 0.01)

    async def story(it: Story) -> None:
        process = await it.start()
        it.save_soon()
        await it.keeper.saves.until_over()
        assert it.failures == ["it took longer than 0.01 s"]
        assert process.budgets == [True]
        assert it.keeper.usable

    play(story)


def test_a_suspend_that_cannot_save_gives_nothing_up() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_exception(RequestFailed({"ename": "MemoryError", "evalue": "full"}))
        with pytest.raises(RequestFailed, match="full"):
            await it.keeper.suspend()
        assert it.keeper.usable
        assert it.keeper.process is process

    play(story)


def test_a_suspend_for_which_there_is_no_room_gives_nothing_up() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.lacks_room = [MissingName("large", "ndarray", "its 9 GiB are more than that", no_room=True)]
        process.saving.set_result(None)
        with pytest.raises(OSError, match=r"no room to save large \(its 9 GiB are more than that\)"):
            await it.keeper.suspend()
        assert it.keeper.usable
        assert it.keeper.process is process
        process.lacks_room = []
        await it.keeper.suspend()  # what can never be saved is no reason to stay
        assert it.keeper.process is None

    play(story)


def test_a_suspend_that_is_given_up_gives_nothing_up_however_far_it_was() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        for behind_another_save in (False, True):
            process.saving = asyncio.get_running_loop().create_future()
            if behind_another_save:
                it.save_soon()
                await turns(lambda: it.keeper.saves.active)
            suspend = asyncio.create_task(it.keeper.suspend())
            await asyncio.sleep(0)
            it.keeper.give_up_suspend()
            with pytest.raises(RequestFailed, match="SaveStoppedError"):
                await suspend
            assert it.keeper.usable
            await it.keeper.saves.until_over()
        it.keeper.give_up_suspend()
        process.saving = asyncio.get_running_loop().create_future()
        process.saving.set_result(None)
        await it.keeper.suspend()  # a later one is not concerned

    play(story)


def test_a_suspend_is_not_stopped_with_a_save_that_begins_behind_it_and_gives_way() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.too_much = process.can_be_copied = process.refuses_copies = True
        it.keeper.saves.within_s = 0.0
        it.keeper.saves.cell_ran(1.0)
        it.save_soon()  # over its budget, and due: the process saves all of it, as it cannot be copied
        suspend = asyncio.create_task(it.keeper.suspend())
        await turns(lambda: bool(process.stops))
        process.saving = asyncio.get_running_loop().create_future()
        process.saving.set_result(None)
        assert (await suspend).manifest.cell == it.keeper.last_cell
        assert process.budgets == [True, False, False]
        assert it.failures == []

    play(story)


def test_a_stop_during_a_suspend_ends_the_process_and_the_suspend() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        suspend = asyncio.create_task(it.keeper.suspend())
        await asyncio.sleep(0)
        assert await it.keeper.end("at the deadline") is process
        with pytest.raises(GpuProcessDied):
            await suspend
        assert not it.keeper.usable
        assert it.own_ends == []

    play(story)


def test_names_that_were_not_saved_are_missing_once_and_what_comes_back_changed_is_told_once() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        await it.keeper.suspend()
        for expected in (["gen"], []):
            process = await it.keeper.launch({})
            restored = await it.keeper.bring_back(process, None)
            assert [missing["name"] for missing in restored.missing] == expected
            assert [changed["name"] for changed in restored.changed] == ["x"] * len(expected)
            assert restored.cell is None
            await it.keeper.end("again")

    play(story)


def test_a_state_that_only_lacked_room_is_not_taken_for_lost() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        await it.keeper.suspend()
        process = await it.keeper.launch({})
        process.missing = [
            {"name": "x", "type_name": "ndarray", "reason": "OutOfMemoryError: 1 GiB", "lacks_memory": True}
        ]
        with pytest.raises(LaunchFailed, match="no room for x on this GPU"):
            await it.keeper.bring_back(process, None)
        assert it.keeper.saved is not None
        assert not it.keeper.usable

    play(story)


def test_a_save_point_takes_the_place_of_what_was_saved_before() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        before = await it.keeper.save("[4]")
        descriptor = os.memfd_create("point")
        process.on_save_point((descriptor,), Manifest(1, (), (), "[5], save point 1"))
        assert it.keeper.saved is not None
        assert it.keeper.saved.manifest.cell == "[5], save point 1"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(before.descriptors[0])
        await asyncio.sleep(0)
        assert it.save_points == [it.keeper.saved]
        os.fstat(descriptor)

    play(story)


def test_only_a_running_cell_is_told_to_give_the_gpu_back() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        assert not await it.keeper.reclaim("bob needs GPU 0", 20.0)
        assert process.reclaims == []
        cell = it.begin()
        process.reclaimed.set_result(True)
        assert await it.keeper.reclaim("bob needs GPU 0", 20.0)
        assert process.reclaims == [("bob needs GPU 0", 20.0)]
        process.reply.set_result(DONE)
        await cell

    play(story)


def test_a_cell_that_ended_meanwhile_or_died_was_not_interrupted() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        it.begin()
        process.reclaimed.set_result(False)
        assert not await it.keeper.reclaim("bob needs GPU 0", 20.0)
        process.reclaimed = asyncio.get_running_loop().create_future()
        reclaim = asyncio.create_task(it.keeper.reclaim("bob needs GPU 0", 20.0))
        await asyncio.sleep(0)
        process.dies()
        assert not await reclaim

    play(story)


def test_a_cell_that_cannot_listen_now_counts_as_told_when_it_does() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        it.begin()
        reclaim = asyncio.create_task(it.keeper.reclaim("bob needs GPU 0", 20.0))
        await asyncio.sleep(0)
        assert not reclaim.done()
        process.reclaimed.set_result(True)
        assert await reclaim

    play(story)


def test_a_save_that_costs_too_much_is_made_when_nobody_runs_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "IDLE_S", 0.0)

    async def story(it: Story) -> None:
        process = await it.start()
        process.too_much = True
        process.saving.set_result(None)
        it.save_soon()
        await it.keeper.saves.until_over()
        assert (process.budgets, it.saves, it.failures) == ([True, False], 1, [])

    play(story)


def test_it_gives_way_to_the_next_cell_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.too_much = True
        it.save_soon()
        await turns(lambda: it.keeper.saves.waiting)
        await it.keeper.saves.give_way()
        assert (process.budgets, process.stops) == ([True], [])
        monkeypatch.setattr(saving, "IDLE_S", 0.0)
        it.save_soon()
        await turns(lambda: process.budgets == [True, True, False])
        await it.keeper.saves.give_way()
        assert (process.stops, it.saves, it.failures) == ([process.numbered], 0, [])

    play(story)


def test_what_a_save_left_is_looked_at_when_nobody_runs_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "WHOLE_AFTER_S", 0.0)

    async def story(it: Story) -> None:
        process = await it.start()
        process.leaves = 1
        process.saving.set_result(None)
        it.save_soon()
        await turns(lambda: it.saves == 2)
        assert (process.budgets, it.failures) == ([True, False], [])

    play(story)


def test_nobody_waits_until_what_a_save_left_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "WHOLE_AFTER_S", math.inf)

    async def story(it: Story) -> None:
        process = await it.start()
        process.leaves = 1
        process.saving.set_result(None)
        for rely_on_it in (it.keeper.saves.give_way, it.keeper.saves.until_over):
            it.save_soon()
            await turns(lambda: it.keeper.saves.waiting)
            assert not it.keeper.saves.active
            await rely_on_it()
        assert (process.budgets, it.saves, it.failures) == ([True, True], 2, [])

    play(story)


def test_who_died_before_it_began_a_cell_is_told_apart() -> None:
    async def story(it: Story) -> None:
        for msg_id, begun in (("m", True), ("n", False)):
            process = await it.start()
            cell = it.begin(msg_id)
            await asyncio.sleep(0)
            process.dies()
            with pytest.raises(EndedInCell) as ended:
                await cell
            assert ended.value.begun is begun
            await it.ended.wait()

    play(story)


async def _small_cell(it: Story, process: FakeProcess) -> None:
    """A cell that takes no time, after a save that took some."""
    process.saving.set_result(None)
    it.save_soon()
    await it.keeper.saves.until_over()
    it.keeper.saves._cost_s = 1.0
    it.save_soon()
    await turns(lambda: it.keeper.saves.waiting)


def test_small_cells_that_follow_each_other_are_saved_together() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        await _small_cell(it, process)
        assert not it.keeper.saves.active
        await it.keeper.saves.give_way()
        assert (it.saves, process.stops, it.failures) == (1, [], [])
        it.keeper.saves.cell_ran(saving.WITHIN_S)
        it.save_soon()
        assert it.keeper.saves.active
        await it.keeper.saves.until_over()
        assert it.saves == 2

    play(story)


def test_a_save_that_always_costs_too_much_is_made_all_the_same_once_it_is_due() -> None:
    async def story(it: Story) -> None:
        process, now_s = await it.start(), 0.0
        it.keeper.saves._clock = lambda: now_s
        process.too_much = True
        process.saving.set_result(None)
        for _ in range(8):  # as Run All sends them
            now_s += 0.5
            it.keeper.saves.cell_ran(0.5)
            it.save_soon()
            await turns(lambda: not it.keeper.saves.active)
            await it.keeper.saves.give_way()
        assert (process.budgets, it.saves, it.failures) == ([True, True, True, False] * 2, 2, [])

    play(story)


def test_a_cell_that_follows_waits_for_a_save_that_is_due_and_was_begun_when_none_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saving, "IDLE_S", 0.0)

    async def story(it: Story) -> None:
        process, now_s = await it.start(), 0.0
        saves = it.keeper.saves
        saves._clock = lambda: now_s
        process.too_much = True
        saves.cell_ran(0.5)
        it.save_soon()
        await turns(lambda: process.budgets == [True, False])
        assert not saves.active
        now_s = saving.WITHIN_S
        assert saves.active
        process.saving.set_result(None)
        await turns(lambda: not saves.active)
        assert (it.saves, process.stops) == (1, [])

    play(story)


class Copied:
    """A notebook whose saves always cost too much, and whose process can be copied."""

    def __init__(self, it: Story, process: FakeProcess) -> None:
        self.it, self.process, self.saves = it, process, it.keeper.saves
        self.now_s = 0.0
        self.saves._clock = lambda: self.now_s
        process.too_much = process.can_be_copied = True
        self.cells = 0

    async def cell(self, seconds: float = 0.5) -> None:
        """One more cell, as Run All sends it: nothing keeps it waiting but a copy that is just being made."""
        self.cells += 1
        self.now_s += seconds
        self.it.keeper.completed.ran(f"[{self.cells}]")
        self.saves.cell_ran(seconds)
        self.it.keeper.save_soon(f"[{self.cells}]", self.it.saved, self.it.failures.append, lambda: None)
        await turns(lambda: not self.saves.active)
        if self.saves.waiting:
            await self.saves.give_way()

    def first_cell(self, seconds: float) -> None:
        """It has just ended, and none follows yet."""
        self.saves.cell_ran(seconds)
        self.it.keeper.completed.ran("[1]")
        self.it.save_soon()

    @property
    def copied(self) -> list[str]:
        return [cell for cell, _ in self.process.copies]

    async def end(self, how: str) -> None:
        """The copy is over; what it has saved was taken over before."""
        cell, over = self.process.copies[-1]
        if how == "done":
            descriptor = os.memfd_create("saved")
            self.it.keeper.take_save_point((descriptor,), Manifest(1, (), (), cell))
        over.set_result(how)
        await turns(lambda: not saving._runs(self.saves._copy))


def test_what_is_due_is_saved_by_a_copy_and_no_cell_waits_for_it() -> None:
    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        for _ in range(4):
            await notebook.cell()
        assert notebook.copied == ["[4]"]
        for _ in range(6):  # it takes its time
            await notebook.cell()
        assert notebook.process.budgets == [True] * 4
        await notebook.end("done")
        assert it.keeper.completed.unsaved == [f"[{number}]" for number in range(5, 11)]
        await notebook.cell()
        assert notebook.copied == ["[4]", "[11]"]
        await notebook.end("done")
        assert it.keeper.completed.unsaved == []
        assert (it.failures, len(it.save_points)) == ([], 2)
        for _ in range(3):
            await notebook.cell()
        assert notebook.copied == ["[4]", "[11]"]
        await notebook.cell()
        assert notebook.copied == ["[4]", "[11]", "[15]"]
        await notebook.end("done")

    play(story)


@pytest.mark.parametrize("how", ["failed", "stopped", "refused"])
def test_what_a_copy_did_not_save_is_due_on(how: str) -> None:
    async def story(it: Story) -> None:
        told: list[str] = []
        it.keeper.on_notice = told.append
        notebook = Copied(it, await it.start())
        process = notebook.process
        process.saving.set_result(None)
        await notebook.cell(3.0)
        await notebook.cell()
        assert notebook.copied == ["[1]"]
        process.can_be_copied = how == "stopped"
        await notebook.end(how)
        assert len(told) == (how == "failed")
        assert it.keeper.completed.unsaved == ["[1]", "[2]"]
        await notebook.cell()
        if how == "stopped":
            assert notebook.copied == ["[1]", "[3]"]
            await notebook.end("done")
        else:
            assert process.budgets == [True, False]
        assert it.keeper.completed.unsaved == []

    play(story)


def test_what_a_copy_could_not_save_is_saved_by_the_process_if_no_cell_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "IDLE_S", 0.0)

    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        process = notebook.process
        process.saving.set_result(None)
        notebook.first_cell(3.0)
        await turns(lambda: bool(process.copies))
        process.can_be_copied = False
        await notebook.end("failed")
        await turns(lambda: it.saves == 1)
        assert process.budgets == [True, False]
        assert not notebook.saves.active

    play(story)


def test_a_process_that_refuses_to_be_copied_is_waited_for() -> None:
    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        notebook.process.refuses_copies = True
        notebook.process.saving.set_result(None)
        await notebook.cell(3.0)
        assert (notebook.process.budgets, notebook.copied, it.saves) == ([True, False], [], 1)

    play(story)


def test_at_no_moment_does_a_cell_pass_the_save_of_a_process_that_has_refused_to_be_copied() -> None:
    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        notebook.process.refuses_copies = True
        notebook.first_cell(3.0)
        for _ in range(40):
            assert notebook.saves.active
            await asyncio.sleep(0)
        notebook.process.saving.set_result(None)
        await turns(lambda: not notebook.saves.active)
        assert (notebook.process.budgets, it.saves) == ([True, False], 1)

    play(story)


def test_a_cell_that_comes_in_an_idle_save_has_what_is_due_copied_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a long one, and a kill in it would take the cells before with it."""
    monkeypatch.setattr(saving, "IDLE_S", 0.0)

    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        process = notebook.process
        notebook.first_cell(0.5)
        await turns(lambda: process.budgets == [True, False])
        notebook.now_s = saving.WITHIN_S
        assert not notebook.saves.active
        await notebook.saves.give_way()
        assert process.stops
        assert notebook.copied == ["[1]"]
        await notebook.end("done")
        assert it.keeper.completed.unsaved == []

    play(story)


def due_while_no_cell_runs(notebook: Copied) -> None:
    """What a short cell has changed becomes due before anybody is idle."""

    async def waits(seconds: float, until: asyncio.Task[bool] | None = None) -> None:
        if until is not None:
            await asyncio.wait([until])
        else:
            notebook.now_s += seconds

    notebook.saves._let_pass = waits  # type: ignore[method-assign]
    notebook.now_s = saving.WITHIN_S - 0.5
    notebook.first_cell(notebook.now_s)


def test_what_becomes_due_while_no_cell_runs_is_saved_by_a_copy_so_that_one_that_comes_then_waits_for_nothing() -> None:
    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        process = notebook.process
        due_while_no_cell_runs(notebook)
        await turns(lambda: notebook.copied == ["[1]"] and not notebook.saves._copying)
        assert not notebook.saves.active
        await notebook.saves.give_way()
        assert (process.budgets, process.stops) == ([True], [])
        await notebook.end("done")
        assert it.keeper.completed.unsaved == []

    play(story)


def test_what_becomes_due_while_no_cell_runs_is_saved_by_the_process_if_its_copy_fails() -> None:
    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        process = notebook.process
        process.saving.set_result(None)
        due_while_no_cell_runs(notebook)
        await turns(lambda: notebook.copied == ["[1]"])
        process.can_be_copied = False
        await notebook.end("failed")
        await turns(lambda: it.saves == 1)
        assert process.budgets == [True, False]

    play(story)


def test_a_cell_that_relies_on_the_one_before_waits_for_its_copy() -> None:
    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        notebook.first_cell(3.0)
        await turns(lambda: bool(notebook.process.copies))
        assert not notebook.saves.active
        await notebook.saves.hurry()
        assert notebook.saves.active
        await notebook.end("done")
        await turns(lambda: not notebook.saves.active)
        assert it.keeper.completed.unsaved == []

    play(story)


def test_everything_is_saved_when_the_copy_has_ended() -> None:
    async def story(it: Story) -> None:
        notebook = Copied(it, await it.start())
        await notebook.cell(3.0)
        over = asyncio.create_task(notebook.saves.until_over())
        await asyncio.sleep(0)
        assert not over.done()
        await notebook.end("done")
        await over

    play(story)


def test_a_save_that_is_due_and_was_given_up_is_due_again_after_twenty_times_what_it_took() -> None:
    async def story(it: Story) -> None:
        process, now_s = await it.start(), 100.0
        saves = it.keeper.saves
        saves._clock = lambda: now_s
        process.too_much = True
        saves.cell_ran(10.0)
        it.save_soon()
        await turns(lambda: process.budgets == [False])
        now_s += 3.0
        saves.stop()
        await turns(lambda: not saves.active)
        assert it.failures == ["it was interrupted"]
        for _ in range(7):
            now_s += 10.0
            saves.cell_ran(1.0)
            it.save_soon()
            await turns(lambda: not saves.active)
            await saves.give_way()
        assert process.budgets == [False, *[True] * 5, False, False]

    play(story)


def test_a_small_cell_that_none_follows_is_saved_at_once() -> None:
    async def story(it: Story) -> None:
        await _small_cell(it, await it.start())
        await it.keeper.saves._first
        assert it.saves == 2

    play(story)


def test_a_cell_that_follows_at_once_waits_for_nothing_of_a_save_that_lets_it_pass() -> None:
    async def story(it: Story) -> None:
        await _small_cell(it, await it.start())
        saves = it.keeper.saves
        await turns(lambda: saves._lets_pass)
        left, turned = saves._first, asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turned.set_result, None)
        await saves.give_way()
        assert not turned.done()
        assert (saves.waiting, saves.active) == (False, False)
        it.save_soon()
        await turns(lambda: saves._lets_pass)
        assert left.cancelled()
        await saves.until_over()
        assert it.saves == 2

    play(story)


def test_a_cell_that_relies_on_the_one_before_has_it_saved_first() -> None:
    async def story(it: Story) -> None:
        await _small_cell(it, await it.start())
        await it.keeper.saves.hurry()
        assert it.keeper.saves.active
        await it.keeper.saves.give_way()
        assert it.saves == 2

    play(story)


def test_a_suspend_names_the_cell_that_ran_last_though_its_save_let_it_pass() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        await _small_cell(it, process)
        await it.keeper.saves.give_way()
        await run(it, process, "[2]")
        assert (await it.keeper.suspend()).manifest.cell == "[2]"
        again = await it.start()
        assert it.keeper.last_cell == "[2]"
        again.dies()

    play(story)


async def run(it: Story, process: FakeProcess, cell: str) -> None:
    """A cell that completes."""
    process.reply = asyncio.get_running_loop().create_future()
    process.reply.set_result(DONE)
    await it.begin(cell=cell)


def test_a_return_names_the_completed_cells_that_it_does_not_hold_once() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        await run(it, process, "[1]")
        await it.keeper.save(it.keeper.last_cell)
        for cell in ("[2]", "[4]"):
            await run(it, process, cell)
        process.reply = asyncio.get_running_loop().create_future()
        broken = it.begin(cell="[5]")
        await asyncio.sleep(0)
        process.dies()
        with pytest.raises(EndedInCell):
            await broken
        await it.ended.wait()
        again = await it.keeper.launch({})
        back = await it.keeper.bring_back(again, None)
        assert (back.cell, back.gone) == ("[1]", ["[2]", "[4]"])
        assert it.keeper.last_cell == "[1]"
        assert not (await it.keeper.bring_back(await it.keeper.launch({}), None)).gone

    play(story)


def test_a_save_point_holds_the_cells_before_it_and_not_the_rest_of_its_own() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        for cell in ("[1]", "[2]"):
            await run(it, process, cell)
        for number, left in ((1, ["[2]"]), (2, ["[2]"])):
            process.on_save_point((os.memfd_create("point"),), Manifest(1, (), (), f"[2], save point {number}"))
            assert it.keeper.completed.unsaved == left
        process.on_save_point((os.memfd_create("point"),), Manifest(1, (), (), "[3], save point 1"))
        assert it.keeper.completed.unsaved == []

    play(story)


def test_a_restart_that_the_user_wished_for_loses_nothing() -> None:
    async def story(it: Story) -> None:
        await run(it, await it.start(), "[1]")
        it.keeper.begin_anew()
        assert it.keeper.last_cell is None
        assert not (await it.keeper.bring_back(await it.keeper.launch({}), None)).gone

    play(story)


def test_what_could_not_be_restored_is_tried_again_for_at_most_a_twentieth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    lost = {"name": "x", "type_name": "net.Model", "reason": "no module", "lacks_memory": False}

    async def slowly(process: FakeProcess, **_: Any) -> dict[str, Any]:
        now[0] += 3.0
        return await process.restore(())

    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        await it.keeper.save("[1]")
        assert not it.keeper.coming_back.due
        monkeypatch.setattr(FakeProcess, "missing", [lost])
        monkeypatch.setattr(FakeProcess, "carried", ["x"])
        monkeypatch.setattr(FakeProcess, "try_again", slowly, raising=False)
        back = await it.keeper.bring_back(await it.keeper.launch({}), None)
        assert (back.not_back, [m["name"] for m in back.missing]) == ([lost], ["gen"])
        assert it.keeper.coming_back.not_back == {"x": "no module"}
        monkeypatch.setattr(coming_back, "monotonic_s", lambda: now[0])
        assert it.keeper.coming_back.due
        await it.keeper.coming_back.try_again(it.keeper.there)
        now[0] += 59.0
        assert not it.keeper.coming_back.due
        it.keeper.coming_back.name_error("name 'another' is not defined")
        assert not it.keeper.coming_back.due
        now[0] += 2.0
        assert it.keeper.coming_back.due
        await it.keeper.coming_back.try_again(it.keeper.there)
        it.keeper.coming_back.name_error("name 'x' is not defined")
        assert it.keeper.coming_back.due, "a cell has failed for want of it"
        monkeypatch.undo()

    play(story)


def test_what_processes_die_of_is_told_to_the_next_one_and_an_end_on_purpose_is_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        await it.keeper.save("[1]")
        monkeypatch.setattr(FakeProcess, "dies_of", "ab")
        with pytest.raises(GpuProcessDied):
            await it.keeper.bring_back(await it.keeper.launch({}), None)
        again = await it.keeper.launch({})
        await it.keeper.bring_back(again, None)
        assert again.deaths == {"ab": 1}
        monkeypatch.setattr(FakeProcess, "dies_of", "cd")
        stopped = await it.keeper.launch({})
        it.keeper.ordered_end = "evicted"
        with pytest.raises(GpuProcessDied):
            await it.keeper.bring_back(stopped, None)
        monkeypatch.setattr(FakeProcess, "dies_of", None)
        back = await it.keeper.launch({})
        await it.keeper.bring_back(back, None)
        assert back.deaths == {"ab": 1}
        back.saving.set_result(None)
        await it.keeper.save("[2]")  # which says itself what is not tried again
        last = await it.keeper.launch({})
        await it.keeper.bring_back(last, None)
        assert last.deaths == {}

    play(story)


def test_a_save_that_is_found_after_a_death_says_itself_what_is_not_back(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Manifest(1, (), (), "[2]", carried=(SavedName("net", "net.Model", 1, "gpu", "no module"),))

    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        await it.keeper.save("[1]")
        assert it.keeper.coming_back.not_back == {}
        cell = it.begin()
        await asyncio.sleep(0)
        monkeypatch.setattr(module, "read_manifest", lambda _: newer)
        process.reply.set_exception(GpuProcessDied(KILLED))
        with pytest.raises(EndedInCell):
            await cell
        assert it.keeper.coming_back.not_back == {"net": "no module"}

    play(story)


def test_what_killed_two_processes_is_tried_again_only_if_the_user_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"name": "x", "type_name": "net.Model", "reason": WAITS, "lacks_memory": False}

    async def try_again(process: FakeProcess, *, asked: bool) -> dict[str, Any]:
        tried.append(asked)
        return await process.restore(())

    async def story(it: Story) -> None:
        process = await it.start()
        process.saving.set_result(None)
        await it.keeper.save("[1]")
        monkeypatch.setattr(FakeProcess, "missing", [lost])
        monkeypatch.setattr(FakeProcess, "carried", ["x"])
        monkeypatch.setattr(FakeProcess, "try_again", try_again, raising=False)
        await it.keeper.bring_back(await it.keeper.launch({}), None)
        assert not it.keeper.coming_back.due
        await it.keeper.coming_back.ask_again()
        assert it.keeper.coming_back.due
        await it.keeper.coming_back.try_again(it.keeper.there)
        assert not it.keeper.coming_back.due

    tried: list[bool] = []
    play(story)
    assert tried == [True]


def test_a_process_that_ended_while_its_save_let_pass_is_said() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        await _small_cell(it, process)
        process.dies()
        await it.keeper.saves._first
        assert (it.saves, it.failures) == (1, ["the GPU process ended before that"])

    play(story)


def test_a_restart_while_a_save_lets_pass_needs_no_word() -> None:
    async def story(it: Story) -> None:
        process = await it.start()
        await _small_cell(it, process)
        it.keeper.begin_anew()
        process.dies()
        await it.keeper.saves._first
        assert (it.saves, it.failures) == (1, [])

    play(story)
