"""A daemon's journal as a workload: what its notebooks and commands asked for, and when their cells ran.

A cell's recorded length is that since its GPU process could run it: what it waited for a Gpu is left out. What it held
is the most that the samples showed meanwhile, and so is a command's; of one that none has shown it is the request.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.step import step
from nls_scheduler.daemon.journal_steps import read_steps
from nls_scheduler.daemon.journal_tables import JournalError
from nls_scheduler.what_if.scenario import Node
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session, WorkloadFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.what_if.workload_file.rows import Row

_SHORTEST_S = 0.001
_MOST_BACK_S = 1.0
"""An event that is older by more is of another boot."""


@dataclass
class _Seen:
    """One workload of the journal so far; times are those of the wall clock.

    Attributes:
        held_bytes: the most that was sampled; `None`: it was never sampled.
    """

    workload: Workload
    begin: float
    running_since: float | None = None
    held_bytes: int | None = None
    cell: tuple[float, int] | None = None
    cells: list[Cell] = field(default_factory=list)


class Clock:
    """One that nobody sets: of each boot its own, between two daemons the wall's. Seconds, from the first step's on."""

    def __init__(self) -> None:
        self.now = 0.0
        self._last: tuple[float, float] | None = None

    def pass_to(self, event: Event, wall: float) -> None:
        """The next step, and what the wall clock showed."""
        if self._last is None:
            self.now, self._last = wall, (event.at, wall)
            return
        at, last_wall = self._last
        if isinstance(event, ev.DaemonRestarted) or event.at < at - _MOST_BACK_S:
            self.now += max(0.0, wall - last_wall)
            at = event.at
        self.now += max(0.0, event.at - at)
        self._last = max(at, event.at), wall


class JournalReader:
    """Takes a journal's states in their order; `rows` is what came of them."""

    def __init__(self) -> None:
        self._seen: dict[WorkloadId, _Seen] = {}
        self._rows: list[Row] = []
        self._names: dict[str, int] = {}
        self.node: Node | None = None

    def take(self, state: NodeState, wall: float) -> None:
        """The node as it was known at that moment."""
        sizes = [gpu.capacity_bytes for gpu in state.gpus.values()]
        if sizes and (self.node is None or len(sizes) > self.node.gpus):
            self.node = Node(len(sizes), min(sizes))
        for key in [key for key in self._seen if key not in state.workloads]:
            self._end(self._seen.pop(key), wall)
        for key, workload in state.workloads.items():
            seen = self._seen.setdefault(key, _Seen(workload, wall))
            if seen.workload is not workload or seen.begin == wall:
                self._follow(seen, workload, wall)

    def rows(self, wall: float) -> list[Row]:
        """All of it, as of the journal's last step, with times from 0 on; in order of begins."""
        for seen in self._seen.values():
            self._end(seen, wall)
        self._seen.clear()
        begin = min((row.begin_s for row in self._rows), default=0.0)
        moved = [replace(r, begin_s=round(r.begin_s - begin, 3), end_s=round(r.end_s - begin, 3)) for r in self._rows]
        return sorted(moved, key=lambda row: (row.begin_s, isinstance(row, Cell)))

    def _follow(self, seen: _Seen, workload: Workload, wall: float) -> None:
        seen.workload = workload
        runs = workload.phase is Phase.RUNNING
        held = max(workload.memory_used.values(), default=0)
        if workload.measured:
            seen.held_bytes = max(seen.held_bytes or 0, held)
        computes = runs and workload.cell_since is not None
        if runs and seen.running_since is None:
            seen.running_since = wall
        if computes:
            begin, most = seen.cell or (wall, 0)
            seen.cell = begin, max(most, held)
        elif seen.cell is not None:
            self._end_cell(seen, wall)

    def _end_cell(self, seen: _Seen, wall: float) -> None:
        if seen.cell is None:
            return
        begin, most = seen.cell
        seen.cell = None
        state_bytes = seen.workload.saved_bytes or 0
        memory_bytes = max(0, most - seen.workload.context_bytes, state_bytes)
        if wall - begin >= _SHORTEST_S:
            seen.cells.append(Cell("", begin, wall, memory_bytes, state_bytes))

    def _end(self, seen: _Seen, wall: float) -> None:
        spec = seen.workload.spec
        if spec.gpu_count != 1 or spec.gang is not None or wall - seen.begin < _SHORTEST_S:
            return  # what takes several Gpus is not played
        name = self._name(spec.name)
        asks = (spec.request_bytes, spec.limit_bytes, spec.priority, spec.queue)
        if spec.kind is Kind.COMMAND:
            began = seen.running_since
            if began is not None and wall > began:
                held = spec.request_bytes
                if seen.held_bytes is not None:
                    held = min(held, max(0, seen.held_bytes - seen.workload.context_bytes))
                self._rows.append(Command(name, seen.begin, seen.begin + wall - began, *asks, memory_bytes=held))
            return
        self._end_cell(seen, wall)
        self._rows.append(Session(name, seen.begin, wall, *asks))
        self._rows += [replace(cell, name=name) for cell in seen.cells]

    def _name(self, name: str) -> str:
        """Two that had one name at the same time are two."""
        number = self._names[name] = self._names.get(name, 0) + 1
        return name if number == 1 else f"{name} ({number})"


def workload_of(path: Path, told: Callable[[float], None] = lambda _part: None) -> tuple[tuple[Row, ...], Node]:
    """What a journal tells, and its node. `told` hears which part has been read.

    Raises WorkloadFileError with one sentence.
    """
    reader, state, clock = JournalReader(), None, Clock()
    try:
        for snapshot, event, _, wall in read_steps(path, told=told):
            state = snapshot if snapshot is not None else state
            clock.pass_to(event, wall)
            if state is None:
                continue
            state, _ = step(state, event)
            if not isinstance(event, ev.TimerFired):
                reader.take(state, clock.now)
    except JournalError as error:
        raise WorkloadFileError(str(error)) from error
    rows = reader.rows(clock.now)
    if reader.node is None or not rows:
        raise WorkloadFileError(f"{path} tells of no notebook and no command on one GPU: there is nothing to play.")
    return tuple(sorted(rows, key=attrgetter("begin_s"))), reader.node
