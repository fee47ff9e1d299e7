"""Save points and `GpuReclaimed` in a real GPU process."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from test_gpu_process import INTERRUPTED_WITHIN_S, Notebook, directory, interrupted, notebook, run

from nls_jupyter.saved_state import read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from nls_jupyter.saved_state import Manifest

__all__ = ["directory"]


def close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Kept:
    """What came out of band, and the names in it."""

    def __init__(self) -> None:
        self.states: list[tuple[int, Manifest]] = []

    def take(self, descriptors: tuple[int, ...], manifest: Manifest) -> None:
        self.states.append((descriptors, manifest))

    def close(self) -> None:
        for descriptors, _ in self.states:
            close_all(descriptors)


@pytest.fixture
def kept() -> Any:
    kept = Kept()
    yield kept
    kept.close()


def text_of_result(nb: Notebook) -> str:
    return str(nb.last("execute_result")["content"]["data"]["text/plain"])


def test_a_save_point_reaches_the_kernel_while_the_cell_still_runs(directory: Path, kept: Kept) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            code = (
                "import nls_jupyter, os, time\nx = 1\nprint(nls_jupyter.save_point())\nx = 2\n"
                "while not os.path.exists('go'): time.sleep(0.005)"
            )
            cell = asyncio.create_task(nb.run(code, cell="[5]"))
            await nb.shows(lambda: "True" in nb.text())
            assert not cell.done()
            ((descriptors, manifest),) = kept.states
            assert manifest.cell == read_manifest(descriptors).cell == "[5], save point 1"
            (directory.parent / "go").touch()
            assert (await cell)["status"] == "ok"
        async with notebook(directory) as nb:
            await nb.process.restore(descriptors)
            await nb.run("x")
            assert text_of_result(nb) == "1"

    run(story())


def test_a_save_point_that_comes_too_soon_costs_nothing(directory: Path, kept: Kept) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            await nb.run("import nls_jupyter, numpy\nx = numpy.ones(1 << 20)\n1 / 0")
            descriptors, _ = await nb.process.save(cell="1")
            close_all(descriptors)
            await nb.run("import nls_jupyter\nsum(nls_jupyter.save_point() for _ in range(200))", cell="[2]")
            saved = int(text_of_result(nb))  # none where the machine is so busy that even the first would cost too much
            assert saved <= 1
            assert [manifest.cell for _, manifest in kept.states] == ["[2], save point 1"][:saved]

    run(story())


def test_threads_and_forked_children_take_no_save_points(directory: Path, kept: Kept) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            await nb.run(
                "import nls_jupyter, os, threading, warnings\n"
                "told = []\n"
                "thread = threading.Thread(target=lambda: told.append(nls_jupyter.save_point()))\n"
                "thread.start(); thread.join()\n"
                "warnings.simplefilter('ignore')\n"
                "child = os.fork()\n"
                "if not child: os._exit(nls_jupyter.save_point())\n"
                "told.append(bool(os.waitpid(child, 0)[1])); told"
            )
            assert text_of_result(nb) == "[False, False]"
            assert kept.states == []

    run(story())


async def reclaimed(nb: Notebook, code: str, **options: Any) -> Any:
    """The reply to a cell that is told to give the GPU back once it has printed `up`."""
    cell = asyncio.create_task(nb.run(code, **options))
    await nb.shows(lambda: "up" in nb.text())
    assert await nb.process.reclaim("bob needs GPU 0", 20.0)
    return await asyncio.wait_for(cell, INTERRUPTED_WITHIN_S)


CATCHES = """
import nls_jupyter
try:
    print('up', flush=True)
    {wait}
except nls_jupyter.GpuReclaimed as reclaimed:
    print(reclaimed.reason, reclaimed.grace_s, nls_jupyter.save_point())
    raise
"""
WAITS = [
    "import time; time.sleep(600)",
    "while True: pass",
    "import asyncio; await asyncio.sleep(600)",
    "import subprocess; subprocess.run(['sleep', '600'])",
    "import threading; threading.Event().wait()",
]


@pytest.mark.parametrize("wait", WAITS)
def test_a_cell_that_is_told_to_give_the_gpu_back_raises_gpu_reclaimed(directory: Path, kept: Kept, wait: str) -> None:
    async def story() -> None:
        async with notebook(directory, on_save_point=kept.take) as nb:
            reply = await reclaimed(nb, CATCHES.format(wait=wait), cell="[1]")
            assert reply["ename"] == "GpuReclaimed"
            assert reply["evalue"].startswith("the GPU was taken back: bob needs GPU 0. The cell was interrupted")
            assert nb.text() == "up\nbob needs GPU 0 20.0 True\n"
            assert len(kept.states) == 1

    run(story())


LOSES_THE_FIRST = """
import nls_jupyter, time
now, reclaims = time.monotonic(), get_ipython().kernel._reclaims
def lost(reason, grace_s):
    reclaims._asked, reclaims._came = nls_jupyter.GpuReclaimed(reason, grace_s), False
    return True
reclaims.ask, time.monotonic = lost, lambda: now
"""


@pytest.mark.long("reclaimed cells in rare cases")
def test_a_reclaim_whose_signal_is_lost_comes_again_also_where_a_cell_has_frozen_the_clock(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            assert (await reclaimed(nb, f"{LOSES_THE_FIRST}print('up', flush=True)\n{WAITS[0]}"))[
                "ename"
            ] == "GpuReclaimed"

    run(story())


@pytest.mark.long("reclaimed cells in rare cases")
@pytest.mark.parametrize(("wait", "ename"), [(WAITS[0], "KeyboardInterrupt"), (WAITS[2], "CancelledError")])
def test_a_ctrl_c_afterwards_is_an_ordinary_one(directory: Path, wait: str, ename: str) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            for reclaimed, expected in ((True, "GpuReclaimed"), (False, ename)):
                nb.messages.clear()
                cell = asyncio.create_task(nb.run(f"print('up', flush=True)\n{wait}"))
                await nb.shows(lambda: "up" in nb.text())
                if reclaimed:
                    assert await nb.process.reclaim("bob needs GPU 0", 20.0)
                    reply = await asyncio.wait_for(cell, INTERRUPTED_WITHIN_S)
                else:
                    reply = await interrupted(nb, cell)
                assert reply["ename"] == expected

    run(story())


TAKES_ANY_INTERRUPT = [
    "print('up', flush=True)\n!sleep 600\nprint('and goes on')",
    "print('up', flush=True)\nx = !sleep 600",
    "print('up', flush=True)\ninput()",
    "print('up', flush=True)\nimport getpass; getpass.getpass()",
    "print('up', flush=True)\ndef wait(seconds):\n    !sleep {seconds}\nwait(600)",
    "%%bash\necho up\nsleep 600",
    "%%script bash\necho up\nsleep 600",
    "%%bash --no-raise-error\necho up\nsleep 600",
]


@pytest.mark.parametrize("code", TAKES_ANY_INTERRUPT)
def test_what_takes_each_interrupt_for_a_ctrl_c_ends_the_cell_with_gpu_reclaimed_too(
    directory: Path, code: str
) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            reply = await reclaimed(nb, code, on_stdin=lambda _: None)
            assert (reply["status"], reply["ename"]) == ("error", "GpuReclaimed")
            assert reply["evalue"].startswith("the GPU was taken back: bob needs GPU 0.")
            assert nb.last("error")["content"]["ename"] == "GpuReclaimed"
            assert "and goes on" not in nb.text()
            await nb.run("1 + 1")  # nothing of it comes to the next cell
            assert text_of_result(nb) == "2"

    run(story())


SOMEBODY_ELSES = """
import types
library = types.ModuleType("library")
exec('''
import time
def train():
    try:
        print("up", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        return "shut down in order"
''', library.__dict__)
library.train()
"""


def test_a_library_that_shuts_down_in_order_ends_the_cell_well_and_the_cell_says_why(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            reply = await reclaimed(nb, SOMEBODY_ELSES)
            assert reply["status"] == "ok"
            assert "GpuReclaimed: the GPU was taken back: bob needs GPU 0." in nb.text("stderr")

    run(story())


def test_who_catches_it_by_itself_is_told_no_more(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            code = (
                "import nls_jupyter, time\ntry:\n    print('up', flush=True)\n    time.sleep(600)\n"
                "except nls_jupyter.GpuReclaimed: print('in order')"
            )
            assert (await reclaimed(nb, code))["status"] == "ok"
            assert nb.text() + nb.text("stderr") == "up\nin order\n"

    run(story())


def test_without_a_running_cell_nobody_is_interrupted(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            assert not await nb.process.reclaim("bob needs GPU 0", 20.0)
            await nb.run("1")
            assert not await nb.process.reclaim("bob needs GPU 0", 20.0)
            cell = asyncio.create_task(nb.run("print('up', flush=True)\nimport time; time.sleep(600)"))
            await nb.shows(lambda: "up" in nb.text())
            assert (await interrupted(nb, cell))["ename"] == "KeyboardInterrupt"

    run(story())


@pytest.mark.long("reclaimed cells in rare cases")
def test_a_subtask_of_a_reclaimed_cell_is_cancelled_and_the_cell_is_told(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            code = (
                "import asyncio, nls_jupyter\n"
                "async def work():\n"
                "    try:\n        await asyncio.sleep(600)\n"
                "    except asyncio.CancelledError:\n        print('cancelled'); raise\n"
                "print('up', flush=True)\n"
                "await asyncio.gather(work(), work())"
            )
            assert (await reclaimed(nb, code))["ename"] == "GpuReclaimed"
            assert nb.text() == "up\ncancelled\ncancelled\n"

    run(story())
