"""One workload file, played by the real daemon with real processes and by the simulation: the same decisions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.core.model.commands import SetTimer, StartProcess, WorkloadCommand
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.step import step
from nls_scheduler.daemon.journal_steps import read_steps
from nls_scheduler.processes.guardian import read_stat
from nls_scheduler.what_if.observing.journals import workload_of
from nls_scheduler.what_if.play.figures import Figures
from nls_scheduler.what_if.play.stage import Stage
from nls_scheduler.what_if.policies.ours import Ours
from nls_scheduler.what_if.scenario import settings_of
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session
from nls_scheduler.what_if.workload_file.writing import write_rows
from workload_files import extent_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from daemon_process import DaemonProcess
    from nls_scheduler.client.link import SupervisorLink
    from nls_scheduler.core.model.commands import Command as Order
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.what_if.workload_file.rows import Row

pytestmark = pytest.mark.long("nine seconds of a node in real time; the simulation alone is held to stories elsewhere")
GIB = 2**30
TOLERANCE_S: Final = 3.0
"""How far apart in time a decision may be: processes have to be started on a machine that does other things too."""
THIRD_WORKLOAD: Final = (
    Session("alice", 0.0, 8.0, 0.5, 1.0),
    Session("bob", 0.8, 9.0, 0.5, 1.0),
    Cell("alice", 1.6, 1.9, 2**20, 2**20),
    Cell("bob", 2.2, 2.5, 2**20, 2**20),
    Command("training", 3.2, 5.2, 1.0, 1.0),
    Cell("bob", 4.4, 4.6, 2**20, 2**20),
    Cell("alice", 6.8, 7.0, 2**20, 2**20),
)


class Supervisor:
    """Obeys for one workload, with a process that sleeps in the place of a GPU process."""

    def __init__(self, link: SupervisorLink, saved_bytes: int) -> None:
        self.link = link
        self.saved_bytes = saved_bytes
        self.process: subprocess.Popen[bytes] | None = None
        self.runs = asyncio.Event()

    async def obey(self) -> None:
        """Until the workload has ended."""
        async for message in self.link:
            match getattr(message, "command", None):
                case "start_process":
                    self._begin()
                    await self.link.send("process_started", command_id=message.command_id, **self._identity())
                    await self.link.send("process_ready", command_id=message.command_id)
                    self.runs.set()
                case "suspend_process":
                    self.end()
                    await self.link.send(
                        "process_suspended", command_id=message.command_id, saved_bytes=self.saved_bytes
                    )
                case "stop_process":
                    identity = self._identity()
                    self.end()
                    await self.link.send("process_exited", reason="told to", **identity)

    def _begin(self) -> None:
        self.process = subprocess.Popen(["sleep", "600"])

    def _identity(self) -> dict[str, int]:
        assert self.process is not None
        stat = read_stat(self.process.pid)
        assert stat is not None
        return {"pid": self.process.pid, "start_time": stat[1]}

    def end(self) -> None:
        """Its process is gone."""
        self.runs.clear()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class RealNode:
    """Plays rows at their times against a daemon."""

    def __init__(self, client: DaemonClient) -> None:
        self._client = client
        self._began = time.monotonic()
        self._there: dict[str, tuple[str, Supervisor]] = {}

    async def play(self, rows: Iterable[Row]) -> None:
        """All of it, and returns when everybody is gone."""
        async with asyncio.TaskGroup() as everybody:
            for row in rows:
                await self._until(row.begin_s)
                if isinstance(row, Cell):
                    everybody.create_task(self._cell(row))
                else:
                    arrived = asyncio.Event()
                    everybody.create_task(self._stay(row, arrived))
                    await arrived.wait()

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, self._began + at_s - time.monotonic()))

    async def _stay(self, row: Session | Command, arrived: asyncio.Event) -> None:
        kind = "command" if isinstance(row, Command) else "notebook"
        asks: dict[str, Any] = {"request": str(row.request)} | ({"limit": str(row.limit)} if kind == "notebook" else {})
        view = await self._client.submit(kind=kind, name=row.name, **asks)
        async with self._client.supervise(view["id"]) as link:
            supervisor = Supervisor(link, 2**20)
            self._there[row.name] = view["id"], supervisor
            obeying = asyncio.create_task(supervisor.obey())
            arrived.set()
            try:
                if kind == "command":
                    await supervisor.runs.wait()
                    await asyncio.sleep(row.end_s - row.begin_s)
                    identity = supervisor._identity()
                    supervisor.end()
                    await link.send("process_exited", reason="exited with code 0", code=0, **identity)
                else:
                    await self._until(row.end_s)
                    await self._client.release(view["id"])
                async with asyncio.timeout(20):
                    await obeying
            finally:
                supervisor.end()
                obeying.cancel()
                with suppress(asyncio.CancelledError):
                    await obeying

    async def _cell(self, row: Cell) -> None:
        supervisor = self._there[row.name][1]
        await supervisor.link.send("cell_started")
        async with asyncio.timeout(20):
            await supervisor.runs.wait()
        await asyncio.sleep(row.length_s)
        await supervisor.link.send("cell_finished")
        await supervisor.link.send("state_saved", saved_bytes=row.state_bytes)


Decision = tuple[str, str, tuple[int, ...]]


def decisions(steps: Iterable[tuple[Event, Iterable[Order], NodeState, float]]) -> list[tuple[Decision, float]]:
    """Whom each order was for, and where: ids and reasons' figures are not compared."""
    found = []
    for _, orders, state, at in steps:
        for order in orders:
            if isinstance(order, SetTimer):
                continue
            assert isinstance(order, WorkloadCommand)
            gpus = order.gpus if isinstance(order, StartProcess) else ()
            name = state.workloads[order.workload].spec.name
            found.append(((type(order).__name__, name, _indexes(gpus, state)), at))
    return found


def _indexes(gpus: tuple[GpuUuid, ...], state: NodeState) -> tuple[int, ...]:
    return tuple(state.gpus[uuid].index for uuid in gpus)


def simulated(path: Path, gpus: int, gpu_bytes: int, settings: tuple[str, ...]) -> list[tuple[Decision, float]]:
    extent = extent_of(path, gpu_bytes)
    costs, rules = settings_of(settings)
    stage = Stage(gpus, gpu_bytes, costs, Figures(extent.begin_s, extent.length_s, gpus))
    ours = Ours(stage, rules, watched=True)
    steps = []
    tell: Callable[..., tuple[Order, ...]] = ours.node.tell

    def told(event: Event) -> tuple[Order, ...]:
        before = ours.node.state
        orders = tell(event)
        known = {**before.workloads, **ours.node.state.workloads}
        steps.append((event, orders, _with(ours.node.state, known), event.at))
        return orders

    ours.node.tell = told  # type: ignore[method-assign]  # looked at while it plays
    stage.play(ours, rows_of(path, gpu_bytes))
    return decisions(steps)


def _with(state: NodeState, workloads: dict[Any, Any]) -> NodeState:
    return replace(state, workloads=workloads)


def journalled(path: Path) -> list[tuple[Decision, float]]:
    state: NodeState | None = None
    steps = []
    for snapshot, event, orders, wall in read_steps(path):
        state = snapshot if snapshot is not None else state
        assert state is not None
        known = dict(state.workloads)
        state, _ = step(state, event)
        steps.append((event, orders or (), _with(state, {**known, **state.workloads}), wall))
    return decisions(steps)


def test_the_third_workload_is_decided_alike_by_the_real_daemon_and_in_the_simulation(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    path = tmp_path / "story.csv"
    write_rows(path, THIRD_WORKLOAD)

    async def play() -> None:
        await RealNode(await DaemonClient.connect(daemon.socket)).play(rows_of(path))

    asyncio.run(play())
    journal = daemon.directory / "state" / "journal.db"
    real = journalled(journal)
    costs = ("context_bytes=0", "context_s=0.05", "stop_s=0.05", "order_s=0.01")
    virtual = simulated(path, 2, 16 * GIB, costs)
    assert [decision for decision, _ in virtual] == [decision for decision, _ in real]
    names = [decision[:2] for decision, _ in real]
    assert ("SuspendProcess", "bob") in names
    assert names.index(("SuspendProcess", "bob")) < names.index(("StartProcess", "training"))
    began = real[0][1] - virtual[0][1]
    for (decision, at), (_, wall) in zip(virtual, real, strict=True):
        assert abs(wall - began - at) < TOLERANCE_S, decision

    rows, node = workload_of(journal)
    assert (node.gpus, node.gpu_bytes) == (2, 16 * GIB)
    told = {(type(row), row.name): row for row in rows if not isinstance(row, Cell)}
    assert set(told) == {(Session, "alice"), (Session, "bob"), (Command, "training")}
    assert [row.name for row in rows if isinstance(row, Cell)] == ["alice", "bob", "bob", "alice"]
    for row in THIRD_WORKLOAD:
        if not isinstance(row, Cell):
            again = told[type(row), row.name]
            assert abs((again.end_s - again.begin_s) - (row.end_s - row.begin_s)) < TOLERANCE_S
    done = daemon.nls("simulate", "--from-journal", str(journal), "--node", "N-1", "--policy", "nls,whole", "--json")
    assert json.loads(done.stdout)["node"] == {"gpus": 1, "gpu_bytes": 16 * GIB}, done.stderr
    write_rows(tmp_path / "again.csv", rows)
    again_decided = simulated(tmp_path / "again.csv", 2, 16 * GIB, costs)
    assert [decision for decision, _ in again_decided] == [decision for decision, _ in real]
