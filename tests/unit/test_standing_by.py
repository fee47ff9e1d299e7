"""The standby with processes made of promises."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.supervisor import standby as module
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied
from nls_jupyter.supervisor.notices import NoticeLog
from nls_jupyter.supervisor.standby import Standby
from nls_jupyter.supervisor.standby_settings import StandbySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

KILLED = ExitStatus(returncode=None, signal=9)
PREPARED = {"status": "ok", "failed": [], "touched": None}


class FakeProcess:
    """Answers as it is told; its pid is this process's."""

    made: list[FakeProcess]
    answers: dict[str, Any]
    was_asked: asyncio.Event | None = None

    def __init__(self, forward: Any, environment: Any) -> None:
        self.forward, self.environment = forward, environment
        self.pid = os.getpid()
        self.asked: list[tuple[str, Any]] = []
        self.taken = False
        self.exited: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()

    @classmethod
    async def launch(cls, *, environment: Any, forward: Any, **_: Any) -> FakeProcess:
        process = cls(forward, environment)
        cls.made.append(process)
        return process

    async def ready(self) -> None:
        pass

    async def request(self, msg_type: str, content: Any, **_: Any) -> Any:
        self.asked.append((msg_type, content))
        if self.was_asked is not None:
            self.was_asked.set()
        answer = self.answers[msg_type]
        if isinstance(answer, BaseException):
            raise answer
        return await answer if isinstance(answer, asyncio.Future) else answer

    def kill(self) -> None:
        if not self.exited.done():
            self.exited.set_result(KILLED)


class Story:
    def __init__(self) -> None:
        self.busy = False
        self.log = NoticeLog()
        self.shown: list[Any] = []
        settings = StandbySettings(1 << 40)
        self.standby = Standby(settings, lambda: Path("/nowhere"), self.shown.append, lambda: self.busy, self.log)

    async def prepared(self, *modules: str, **changed: str | None) -> None:
        """Have one prepared, and wait for the outcome."""
        self.standby.consider(modules, changed)
        if self.standby._preparing is not None:
            await asyncio.wait([self.standby._preparing])

    async def stands_by(self) -> FakeProcess:
        assert await self.standby.take({"MASK": "first", "ONCE": "1"}) is None
        await self.prepared("numpy")
        assert self.standby.ready
        return FakeProcess.made[-1]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "GpuProcess", FakeProcess)
    monkeypatch.setattr(module, "START_AFTER_S", 0.0)
    monkeypatch.setattr(FakeProcess, "made", [], raising=False)
    answers = {"nls_prepare_request": PREPARED, "nls_adopt_request": {"status": "ok"}}
    monkeypatch.setattr(FakeProcess, "answers", answers, raising=False)
    return


def play(story: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        it = Story()
        try:
            await asyncio.wait_for(story(it), 10)
        finally:
            await it.standby.end()
            assert all(process.exited.done() or process.taken for process in FakeProcess.made)

    asyncio.run(whole())


def test_it_becomes_the_gpu_process_with_the_environment_of_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(it: Story) -> None:
        process = await it.stands_by()
        assert process.environment == {"MASK": "first", "ONCE": "1", "NLS_STANDBY": "1"}
        assert process.asked == [("nls_prepare_request", {"modules": ["numpy"], "environment": {}})]
        process.forward("what a module says")
        assert await it.standby.take({"MASK": "second"}) is process
        process.taken = True
        assert process.asked[-1] == (
            "nls_adopt_request",
            {"environment": {"MASK": "second", "ONCE": None}, "cwd": str(Path.cwd())},
        )
        process.forward("what a cell says")
        assert it.shown == ["what a cell says"]
        assert not it.standby.ready
        assert not process.exited.done()

    play(story)


def test_a_notebook_that_has_imported_nothing_has_none() -> None:
    async def story(it: Story) -> None:
        assert await it.standby.take({"MASK": "first"}) is None
        await it.prepared()
        assert not FakeProcess.made
        await it.prepared("numpy")
        assert it.standby.ready

    play(story)


def test_the_next_one_is_prepared_as_soon_as_one_was_used() -> None:
    async def story(it: Story) -> None:
        process = await it.stands_by()
        assert await it.standby.take({"MASK": "second"}) is process
        process.taken = True
        assert it.standby._preparing is not None
        await asyncio.wait([it.standby._preparing])
        assert it.standby.ready
        assert FakeProcess.made[-1].environment["MASK"] == "second"

    play(story)


def test_before_the_first_gpu_process_there_is_none() -> None:
    async def story(it: Story) -> None:
        await it.prepared("numpy")
        assert FakeProcess.made == []

    play(story)


def test_while_a_cell_runs_none_is_started() -> None:
    async def story(it: Story) -> None:
        await it.standby.take({"MASK": "first"})
        it.busy = True
        await it.prepared("numpy")
        assert FakeProcess.made == []
        it.busy = False
        await it.prepared("numpy")
        assert it.standby.ready

    play(story)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (GpuProcessDied(KILLED), "the GPU process was killed by SIGKILL"),
        (TimeoutError(), "it took longer than 300 s"),
        ({"status": "error", "ename": "MemoryError", "evalue": "full"}, "MemoryError: full"),
        ({**PREPARED, "touched": "CUDA is initialized"}, "uses the GPU when it is imported (CUDA is initialized)"),
    ],
)
def test_one_that_is_no_good_is_ended_and_not_tried_again_with_the_same_modules(answer: Any, sentence: str) -> None:
    async def story(it: Story) -> None:
        await it.standby.take({"MASK": "first"})
        FakeProcess.answers["nls_prepare_request"] = answer
        await it.prepared("numpy")
        assert FakeProcess.made[0].exited.done()
        assert sentence in it.log.as_text()
        await it.prepared("numpy")
        assert len(FakeProcess.made) == 1
        FakeProcess.answers["nls_prepare_request"] = PREPARED
        await it.prepared("numpy", "torch")
        assert it.standby.ready

    play(story)


def test_one_that_takes_too_much_memory_is_ended_while_it_still_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(it: Story) -> None:
        await it.standby.take({"MASK": "first"})
        monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.0)
        monkeypatch.setattr(module, "own_bytes", lambda _: 2 << 40)
        FakeProcess.answers["nls_prepare_request"] = asyncio.get_running_loop().create_future()
        await it.prepared("numpy")
        assert FakeProcess.made[0].exited.done()
        assert "more than the 1 TiB of standby_memory" in it.log.as_text()

    play(story)


def test_a_module_that_cannot_be_imported_is_not_tried_again() -> None:
    async def story(it: Story) -> None:
        await it.standby.take({"MASK": "first"})
        FakeProcess.answers["nls_prepare_request"] = {**PREPARED, "failed": ["broken"]}
        await it.prepared("broken", "numpy")
        assert it.standby.ready
        await it.standby.end()
        await it.prepared("broken", "numpy")
        assert FakeProcess.made[-1].asked == [("nls_prepare_request", {"modules": ["numpy"], "environment": {}})]

    play(story)


@pytest.mark.parametrize(
    "answer", [GpuProcessDied(KILLED), TimeoutError(), {"status": "error", "ename": "RuntimeError", "evalue": "no"}]
)
def test_one_that_cannot_be_adopted_is_ended_and_the_start_is_a_cold_one(answer: Any) -> None:
    async def story(it: Story) -> None:
        process = await it.stands_by()
        FakeProcess.answers["nls_adopt_request"] = answer
        assert await it.standby.take({"MASK": "second"}) is None
        assert process.exited.done()
        assert "could not be used, so that one starts cold" in it.log.as_text()

    play(story)


def test_it_imports_with_the_variables_that_cells_have_changed_and_one_with_others_is_not_used() -> None:
    async def story(it: Story) -> None:
        first = await it.stands_by()
        await it.prepared("numpy", BACKEND="torch", OLD=None)
        assert first.exited.done()
        second = FakeProcess.made[-1]
        changed = {"BACKEND": "torch", "OLD": None}
        assert second.asked == [("nls_prepare_request", {"modules": ["numpy"], "environment": changed})]
        assert second.environment == first.environment
        it.standby._changed = {"BACKEND": "jax"}  # told while it was being prepared
        assert await it.standby.take({"MASK": "next"}) is None
        await asyncio.wait([it.standby._preparing])  # type: ignore[list-item]  # it is being replaced
        assert second.exited.done()
        third = FakeProcess.made[-1]
        assert third.asked[0][1]["environment"] == {"BACKEND": "jax"}
        assert await it.standby.take({"MASK": "next"}) is third
        third.taken = True

    play(story)


def test_one_whose_variables_a_cell_changes_while_it_imports_is_replaced_when_it_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(it: Story) -> None:
        FakeProcess.answers["nls_prepare_request"] = imported = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()
        monkeypatch.setattr(FakeProcess, "was_asked", asked)
        assert await it.standby.take({"MASK": "first"}) is None
        it.standby.consider(["numpy"], {"BACKEND": "torch"})
        await asked.wait()
        it.standby.consider(["numpy"], {})
        preparing = it.standby._preparing
        assert preparing is not None
        imported.set_result(PREPARED)
        await asyncio.wait([preparing])
        assert it.standby._preparing is not None
        await asyncio.wait([it.standby._preparing])
        first, second = FakeProcess.made
        assert first.exited.done()
        assert second.asked[0][1]["environment"] == {}
        assert await it.standby.take({"MASK": "second"}) is second
        second.taken = True

    play(story)


def test_one_from_another_world_is_not_used_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(it: Story) -> None:
        process = await it.stands_by()
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert await it.standby.take({"MASK": "second"}) is None
        assert process.exited.done()
        assert it.standby._preparing is not None

    play(story)


@pytest.mark.parametrize("entry", [None, b"/site-packages", "{}/closed/site-packages"])
def test_what_python_passes_over_in_its_path_hinders_no_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: object
) -> None:
    def denied(path: Any, **options: Any) -> os.stat_result:
        if "closed" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")  # as root meets it nowhere
        return stat(path, **options)

    stat = os.stat
    monkeypatch.setattr(os, "stat", denied)
    monkeypatch.setattr(sys, "path", [*sys.path, entry.format(tmp_path) if isinstance(entry, str) else entry])

    async def story(it: Story) -> None:
        process = await it.stands_by()
        assert await it.standby.take({"MASK": "second"}) is process
        process.taken = True

    play(story)


def test_one_that_dies_while_it_stands_by_is_forgotten() -> None:
    async def story(it: Story) -> None:
        process = await it.stands_by()
        process.kill()
        await asyncio.sleep(0)
        assert (it.standby.ready, it.standby.pid) == (False, None)
        assert await it.standby.take({"MASK": "second"}) is None

    play(story)


def test_an_end_before_the_preparation_has_begun_hinders_no_later_one() -> None:
    async def story(it: Story) -> None:
        assert await it.standby.take({"MASK": "first"}) is None
        it.standby.consider(["numpy"], {})
        await it.standby.end()
        await it.stands_by()

    play(story)


def test_an_end_in_the_middle_of_the_preparation_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(it: Story) -> None:
        await it.standby.take({"MASK": "first"})
        FakeProcess.answers["nls_prepare_request"] = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()
        monkeypatch.setattr(FakeProcess, "was_asked", asked)
        it.standby.consider(["numpy"], {})
        await asked.wait()
        await it.standby.end()
        assert FakeProcess.made[0].exited.done()
        assert (it.standby.ready, it.standby.pid) == (False, None)

    play(story)


def test_one_that_was_still_being_prepared_when_the_notebook_fell_idle_is_ended_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(it: Story) -> None:
        it.standby._settings = StandbySettings(1 << 40, idle_s=0.001)
        FakeProcess.answers["nls_prepare_request"] = prepared = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()
        monkeypatch.setattr(FakeProcess, "was_asked", asked)
        assert await it.standby.take({"MASK": "first"}) is None
        it.standby.consider(["numpy"], {})
        await asked.wait()
        (process,) = FakeProcess.made
        it.standby._end_if_idle()
        assert not process.exited.done()
        prepared.set_result(PREPARED)
        await process.exited

    play(story)
