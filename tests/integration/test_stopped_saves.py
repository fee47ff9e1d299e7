"""What stops a save in a real GPU process, and what does not."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from test_gpu_process import INTERRUPTED_WITHIN_S, Notebook, directory, notebook, run
from test_reclaimed_cells import Kept, close_all, kept

from nls_jupyter.supervisor.pending import RequestFailed
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["directory", "kept"]  # fixtures
pytestmark = pytest.mark.kernel


SLOW_TO_SAVE = """
import pathlib, subprocess, time
class Slow:
    def __reduce__(self):
        pathlib.Path({begun!r}).touch()
        while not pathlib.Path({end!r}).exists(): time.sleep(0.005)
        return (Slow, ())
slow, child = Slow(), subprocess.Popen(['sleep', '600'])
"""


class SlowSave:
    """A save that lasts until it is told to end."""

    def __init__(self, nb: Notebook, tmp_path: Path) -> None:
        self._nb = nb
        self.begun, self._end = tmp_path / "begun", tmp_path / "end"

    async def begin(self, number: int | None = None) -> asyncio.Task[Any]:
        assert (await self._nb.run(SLOW_TO_SAVE.format(begun=str(self.begun), end=str(self._end))))["status"] == "ok"
        save = asyncio.create_task(self._nb.process.save(cell="1", number=number))
        await eventually(self.has_begun)
        return save

    async def has_begun(self) -> bool:
        return self.begun.exists()

    def may_end(self) -> None:
        self._end.touch()

    async def child_lives(self) -> bool:
        await self._nb.run("child.poll() is None")
        return bool(self._nb.last("execute_result")["content"]["data"]["text/plain"] == "True")


def test_a_save_is_stopped_by_its_number_and_nothing_else_is_harmed(directory: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            slow, number = SlowSave(nb, tmp_path), nb.process.next_save()
            save = await slow.begin(number)
            nb.process.stop_saves(number)
            with pytest.raises(RequestFailed, match="SaveStoppedError: the notebook's kernel had the save stopped"):
                await asyncio.wait_for(save, INTERRUPTED_WITHIN_S)
            assert await slow.child_lives()
            slow.may_end()
            descriptors, manifest = await nb.process.save(cell="2")
            close_all(descriptors)
            assert "slow" in {name.name for name in manifest.saved}

    run(story())


def test_a_save_that_is_stopped_before_it_begins_never_begins(directory: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            number = nb.process.next_save()
            nb.process.stop_saves(number)
            with pytest.raises(RequestFailed, match="SaveStoppedError"):
                await nb.process.save(cell="1", number=number)
            descriptors, _ = await nb.process.save(cell="2")
            close_all(descriptors)

    run(story())


@pytest.mark.long("saves that are stopped in rare cases")
def test_a_save_that_nobody_waits_for_any_more_is_stopped(directory: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            slow = SlowSave(nb, tmp_path)
            save = await slow.begin()
            save.cancel()
            await asyncio.wait([save])
            assert await asyncio.wait_for(slow.child_lives(), INTERRUPTED_WITHIN_S)

    run(story())


def test_sigint_in_a_save_between_cells_is_for_nobody(directory: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            slow = SlowSave(nb, tmp_path)
            save = await slow.begin()
            os.kill(nb.process.pid, signal.SIGINT)
            await nb.process.trim()  # it has had its time: another thread has answered meanwhile
            assert not save.done()
            slow.may_end()
            descriptors, manifest = await save
            close_all(descriptors)
            assert "slow" in {name.name for name in manifest.saved}
            assert (await nb.run("1"))["status"] == "ok"

    run(story())


SAVE_POINT = """
import nls_jupyter
try:
    while not nls_jupyter.save_point(): time.sleep(0.005)
except BaseException as error:
    print('raised', type(error).__name__)
    raise
"""


@pytest.mark.parametrize(
    ("handler", "ename"), [("", "KeyboardInterrupt"), ("signal.signal(2, lambda *_: 1 / 0)", "ZeroDivisionError")]
)
def test_ctrl_c_stops_a_save_point_and_is_the_cells(
    directory: Path, tmp_path: Path, kept: Kept, handler: str, ename: str
) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            slow = SlowSave(nb, tmp_path)
            await nb.run(SLOW_TO_SAVE.format(begun=str(slow.begun), end="nothing"))
            cell = asyncio.create_task(nb.run(f"import signal\n{handler}\n{SAVE_POINT}"))
            await eventually(slow.has_begun)
            nb.process.interrupt()
            assert (await asyncio.wait_for(cell, INTERRUPTED_WITHIN_S))["ename"] == ename
            assert nb.text() == f"raised {ename}\n"
            assert kept.states == []

    run(story())


@pytest.mark.long("saves that are stopped in rare cases")
def test_a_cell_that_is_told_to_give_the_gpu_back_finishes_its_save_point_first(
    directory: Path, tmp_path: Path, kept: Kept
) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            slow = SlowSave(nb, tmp_path)
            await nb.run(SLOW_TO_SAVE.format(begun=str(slow.begun), end=str(tmp_path / "end")))
            cell = asyncio.create_task(nb.run(SAVE_POINT))
            await eventually(slow.has_begun)
            assert await nb.process.reclaim("bob needs GPU 0", 20.0)
            slow.may_end()
            assert (await asyncio.wait_for(cell, INTERRUPTED_WITHIN_S))["ename"] == "GpuReclaimed"
            assert nb.text() == "raised GpuReclaimed\n"
            assert len(kept.states) == 1

    run(story())
