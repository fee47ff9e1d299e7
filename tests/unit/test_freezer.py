"""The driver is asked through a helper that may end or hang, and no process is left locked for that."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.between.errors import GpuUnavailable
from nls_jupyter.supervisor import freezer as module
from nls_jupyter.supervisor.changes import Changes
from nls_jupyter.supervisor.freezer import Freezer, NotDone, Stuck
from nls_jupyter.supervisor.notices import NoticeLog
from nls_jupyter.supervisor.place import Place
from nls_scheduler.drivers.checkpoints import State
from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec
from nls_scheduler.drivers.simulated_checkpoints import FAULT_FILE, SimulatedCheckpoints
from nls_scheduler.processes.guardian import some_held
from nls_scheduler.processes.proc import look_up
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

GIB = 2**30
SUBJECT = """
import os, sys
from nls_scheduler.drivers.simulated import SimulatedGpu
SimulatedGpu.from_environment(os.environ).allocate(1 << 30)
print("ready", flush=True)
sys.stdin.readline()
"""


class Node:
    """A simulated Gpu, a process on it, and a freezer."""

    def __init__(self, directory: Path, popen: subprocess.Popen[bytes], variables: dict[str, str]) -> None:
        record = look_up(popen.pid)
        assert record is not None
        self.directory = directory
        self.driver = SimulatedCheckpoints(directory)
        self.id = record.id
        self.process: Any = SimpleNamespace(pid=record.id.pid, start_time=record.id.start_time)
        self.freezer = Freezer(SimpleNamespace(memory_bytes=lambda: 8 * GIB))  # type: ignore[arg-type]  # of its room
        self.freezer.serve(variables)

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        async def then_close() -> None:
            try:
                await story
            finally:
                await self.freezer.close()

        asyncio.run(then_close())

    async def is_locked(self) -> bool:
        return self.driver.state(self.id) is State.LOCKED

    def fault(self, step: str) -> None:
        (self.directory / FAULT_FILE).write_text(step)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    driver = SimulatedDriver(tmp_path, SimulationSpec(1, 4 * GIB), 256 << 20)
    variables = dict(driver.environment([info.uuid for info in driver.discover()]))
    with subprocess.Popen(
        [sys.executable, "-c", SUBJECT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **variables}
    ) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"ready\n"
        yield Node(tmp_path, popen, variables)
        popen.kill()
    driver.close()


def test_a_helper_that_ends_in_the_middle_is_followed_by_one_that_puts_it_right(node: Node) -> None:
    async def story() -> None:
        assert await node.freezer.why_not() is None
        node.fault("late")
        freezing = asyncio.create_task(node.freezer.freeze(node.process, 10.0, GIB))
        await eventually(node.is_locked)
        helper = node.freezer._helper
        assert helper is not None
        helper.send_signal(signal.SIGKILL)
        with pytest.raises(NotDone, match="the helper that asks the driver ended"):
            await freezing
        assert node.driver.state(node.id) is State.RUNNING
        assert not node.freezer.holds(node.process)

    node.run(story())


def test_a_helper_says_so_while_the_driver_may_have_a_process_locked(node: Node) -> None:
    async def story() -> None:
        def held() -> dict[int, int]:
            return {node.process.pid: node.process.start_time}

        node.fault("late")
        freezing = asyncio.create_task(node.freezer.freeze(node.process, 10.0, GIB))
        await eventually(node.is_locked)
        assert some_held(held)
        await freezing
        assert not some_held(held)
        node.fault("unlock")
        with pytest.raises(NotDone):
            await node.freezer.thaw(node.process, 10.0)
        assert some_held(held)
        node.fault("")
        await node.freezer.thaw(node.process, 10.0)
        assert not some_held(held)

    node.run(story())


def test_what_the_driver_does_not_let_go_of_counts_as_held_until_it_does(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        await node.freezer.freeze(node.process, 10.0, GIB)
        node.fault("unlock")
        with pytest.raises(NotDone):
            await node.freezer.thaw(node.process, 10.0)
        assert node.freezer.holds(node.process)
        monkeypatch.setattr(module, "PUT_RIGHT_WITHIN_S", 0.0)
        with pytest.raises(Stuck):
            await node.freezer.go_on(node.process)
        assert node.freezer.holds(node.process)

    node.run(story())


def test_more_than_host_memory_has_room_for_is_not_frozen_and_nothing_is_asked_of_the_driver(node: Node) -> None:
    async def story() -> None:
        with pytest.raises(NotDone, match="host memory has 8 GiB left, and it holds 9 GiB"):
            await node.freezer.freeze(node.process, 10.0, 9 * GIB)
        assert not node.freezer.holds(node.process)

    node.run(story())


def test_it_has_to_fit_beside_what_others_take_at_the_same_time(node: Node) -> None:
    async def story() -> None:
        with pytest.raises(NotDone, match="and it holds 5 GiB, and others that are to stand still 4 GiB"):
            await node.freezer.freeze(node.process, 10.0, 5 * GIB, 4 * GIB)
        assert not node.freezer.holds(node.process)

    node.run(story())


def test_its_user_can_neither_restart_nor_release_what_the_driver_holds() -> None:
    keeper: Any = SimpleNamespace(process=object(), saved=None, held_by_driver=True)
    place = Place(None, dict, keeper, NoticeLog(), Changes())  # type: ignore[arg-type]  # nothing is connected to
    place.orders = SimpleNamespace()  # type: ignore[assignment]

    async def story() -> None:
        for order in (place.restart, place.release):
            with pytest.raises(GpuUnavailable, match="the running cell stands still"):
                await order()

    asyncio.run(story())
