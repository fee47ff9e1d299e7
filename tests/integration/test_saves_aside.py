"""Copies of a real GPU process save while it runs cells."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from test_gpu_process import Notebook, directory, notebook, run
from test_reclaimed_cells import Kept, kept

from nls_jupyter.saved_state import DONE, STOPPED
from nls_jupyter.saved_state.aside import FAILED
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["directory", "kept"]  # fixtures
pytestmark = pytest.mark.kernel

SLOW_TO_COPY = """
import os, pathlib, time
class Slow:
    process = os.getpid()
    def __reduce__(self):
        if os.getpid() != Slow.process:
            pathlib.Path({begun!r}).write_text(str(os.getpid()))
            while not pathlib.Path({end!r}).exists(): time.sleep(0.005)
        return (Slow, ())
slow, n = Slow(), 1
"""


class Copy:
    """A copy that is at work until it is told to end."""

    def __init__(self, nb: Notebook, folder: Path) -> None:
        self._nb = nb
        self._begun, self._end = folder / "begun", folder / "end"

    async def begin(self) -> asyncio.Future[str]:
        assert (await self._nb.run(SLOW_TO_COPY.format(begun=str(self._begun), end=str(self._end))))["status"] == "ok"
        over = await self._nb.process.save_aside(cell="[1]")
        await eventually(self._has_begun)
        return over

    async def _has_begun(self) -> bool:
        return self._begun.exists() and self._begun.read_text("ascii") != ""

    @property
    def pid(self) -> int:
        return int(self._begun.read_text("ascii"))

    async def is_gone(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def may_end(self) -> None:
        self._end.touch()


async def value(nb: Notebook, expression: str) -> str:
    await nb.run(expression)
    return str(nb.last("execute_result")["content"]["data"]["text/plain"])


def test_cells_run_while_a_copy_saves_what_was_there_before_them(directory: Path, kept: Kept, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            copy = Copy(nb, tmp_path)
            over = await copy.begin()
            assert await value(nb, "n += 1; n") == "2"
            nb.process.interrupt()  # nobody's: no cell runs
            assert (await nb.run("import time; time.sleep(0.01); n += 1"))["status"] == "ok"
            assert not over.done()
            assert not kept.states
            copy.may_end()
            assert await asyncio.wait_for(over, 60) == DONE
            ((descriptors, manifest),) = kept.states
            assert manifest.cell == "[1]"
            assert await value(nb, "n") == "3"
            assert nb.process.can_be_copied
        async with notebook(directory) as again:
            assert set((await again.process.restore(descriptors))["restored"]) >= {"n", "Slow", "slow"}
            assert await value(again, "n") == "1"

    run(story())


def test_what_was_imported_is_known_also_where_only_a_copy_saves(directory: Path) -> None:
    """Or no process would stand by for a notebook whose imports took so long that their save was due."""

    async def story() -> None:
        async with notebook(directory, on_save_point=lambda *_: None) as nb:
            await nb.run("import tabnanny")
            over = await nb.process.save_aside(cell="[1]")
            assert "tabnanny" in nb.process.modules
            assert await asyncio.wait_for(over, 60) == DONE

    run(story())


def test_a_save_of_the_process_itself_ends_its_copy(directory: Path, kept: Kept, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            copy = Copy(nb, tmp_path)
            over = await copy.begin()
            await nb.run("n = 5")
            descriptors, manifest = await nb.process.save(cell="[2]")
            try:
                assert manifest.cell == "[2]"
                # It waits for its end outside the save's own steps: it may have had to be killed. Its end is told on
                # another socket than the save's answer.
                assert await asyncio.wait_for(over, 60) in {STOPPED, FAILED}
                assert not kept.states
                await eventually(copy.is_gone)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    run(story())


def test_a_process_that_is_killed_takes_its_copy_along(directory: Path, kept: Kept, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            descriptors, _ = await nb.process.save(cell="[0]")
            copy = Copy(nb, tmp_path)
            over = await copy.begin()
            os.kill(nb.process.pid, 9)
            await asyncio.wait_for(nb.process.exited, 60)
            assert await copy.is_gone()
            assert over.result() == STOPPED
        try:
            async with notebook(directory) as again:
                report: Any = await again.process.restore(descriptors)
                assert "n" not in report["restored"]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    run(story())
