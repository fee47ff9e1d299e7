"""The stage: users who run their cells, Gpus that compute them, and the clock. A policy says who has which Gpu when.

A user runs a cell at its recorded time, or as soon as the one before has ended. Cells that compute on one Gpu at once
slow each other down (`Costs.gpu_part`). At a session's recorded end its user leaves: a cell that runs ends first,
cells that wait, for a Gpu or for that one, never run. Of what happens in one moment sessions end first, then cells, and
then others begin.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Protocol

from nls_scheduler.units.sizes import to_bytes
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nls_scheduler.what_if.play.costs import Costs
    from nls_scheduler.what_if.play.figures import Figures
    from nls_scheduler.what_if.workload_file.rows import Row


@dataclass(eq=False)
class Actor:
    """A notebook or a command of the workload while it is there.

    Attributes:
        name: nobody else has it meanwhile; `called` is the one in the workload.
        request_bytes: of one Gpu of this node, as `limit_bytes`.
        cells: run by its user and not begun yet, oldest first; a command has one.
        asked_at: since when its first cell wants a Gpu; `None`: none wants one.
        cell_waited_s: for how long its first cell waited for a Gpu that it has got, again where it was broken off.
        gpu: where a cell of it computes now.
        idle_since: since when none does.
        state_bytes: what its variables hold on a Gpu.
        lately_s: lengths of its last cells since its memory was empty, for what a loss costs.
        again_s: to be computed again before its next cell.
        leaving: its recorded end has come.
        recorded_s: for how long it was recorded to be there.
        in_line: it has no place yet, by its policy's own measure.
        waits_since: since when it has no place, or asks for a Gpu in vain; `None`: it waits for nothing.
        waited_s: for how long it has waited like that before.
    """

    name: str
    called: str
    is_command: bool
    request_bytes: int
    limit_bytes: int
    priority: int
    queue: str
    arrived_at: float
    recorded_s: float
    cells: deque[Cell] = field(default_factory=deque)
    asked_at: float | None = None
    cell_waited_s: float = 0.0
    gpu: int | None = None
    idle_since: float = 0.0
    state_bytes: int = 0
    lately_s: deque[float] = field(default_factory=deque)
    again_s: float = 0.0
    leaving: bool = False
    in_line: bool = False
    waits_since: float | None = None
    waited_s: float = 0.0

    @property
    def next_memory_bytes(self) -> int:
        """What its next or running cell holds."""
        return self.cells[0].memory_bytes if self.cells else self.state_bytes


class Policy(Protocol):
    """Who has which Gpu when. The stage calls these; a policy calls `Stage.compute`, and `Stage.at` for its timers.

    One where not everybody has a place at once says so by `Stage.line_up` and `Stage.let_in`.
    """

    name: str
    title: str

    def arrives(self, actor: Actor) -> None:
        """A session opens, or a command is submitted."""

    def asks(self, actor: Actor) -> None:
        """Its first cell wants a Gpu. Answered by `Stage.compute`, now or later, or by `Stage.fail`."""

    def finished(self, actor: Actor, cell: Cell) -> None:
        """That cell has ended; `actor.asked_at` says nothing yet of a next one."""

    def leaves(self, actor: Actor) -> None:
        """It is gone: what it had is free. No cell of it computes."""

    def rate(self, actor: Actor, beside: list[Actor]) -> float:
        """How fast it computes on a Gpu on which `beside` (itself included) compute: 1 is alone."""


@dataclass(eq=False)
class _Run:
    actor: Actor
    cell: Cell
    again_s: float
    left_s: float
    began_at: float
    since: float
    rate: float = 1.0
    version: int = 0


class Stage:
    """One play of one workload by one policy on `gpus` equal Gpus."""

    def __init__(self, gpus: int, gpu_bytes: int, costs: Costs, figures: Figures) -> None:
        self.gpus = gpus
        self.gpu_bytes = gpu_bytes
        self.costs = costs
        self.figures = figures
        self.now = figures.begin_s
        self.policy: Policy
        self.actors: dict[str, Actor] = {}
        self._newest: dict[str, Actor] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._ends: list[tuple[float, int, Actor]] = []
        self._sequence = 0
        self._running: list[list[_Run]] = [[] for _ in range(gpus)]
        self._reserved = 0.0
        self._reserved_since = self.now
        self._busy_since: dict[int, float] = {}

    def at(self, when: float, act: Callable[[], None]) -> None:
        """`act` at that time, after whatever was to happen then already."""
        self._sequence += 1
        heapq.heappush(self._agenda, (max(when, self.now), self._sequence, act))

    def play(self, policy: Policy, rows: Iterator[Row], told: Callable[[float], None] = lambda _: None) -> None:
        """All of `rows`, until nothing is left to happen. `told` hears the time, again and again.

        Interrupted, what was counted stands, and `figures.whole` is false.
        """
        self.policy = policy
        self.figures.whole = False
        coming = next(rows, None)
        try:
            while coming is not None or self.actors:
                ends, acts = self._ends[0][0] if self._ends else inf, self._agenda[0][0] if self._agenda else inf
                begins = inf if coming is None else coming.begin_s
                if (when := min(ends, acts, begins)) == inf:
                    self._leave(next(iter(self.actors.values())))  # what it waits for will never come
                    continue
                self.now = max(self.now, when)
                if ends <= when:
                    self._reach_ends()
                elif acts <= when:
                    heapq.heappop(self._agenda)[2]()
                elif coming is not None:
                    self._take(coming)
                    coming = next(rows, None)
                told(self.now)
            self.figures.whole = True
        finally:
            self._note_reserved()
            for actor in self.actors.values():
                self._note_stay(actor)
            self.figures.ended_at = self.now

    def compute(self, actor: Actor, gpu: int, *, held_by: tuple[str, ...] = ()) -> None:
        """Its first cell has `gpu` from now on, with all that it needs there. `held_by`: for whom it waited."""
        if actor.asked_at is None or actor.gpu is not None:
            raise ValueError(f"{actor.name} asks for no GPU")
        waited_s = self.now - actor.asked_at
        actor.cell_waited_s += waited_s
        if waited_s > 0 and held_by:
            self.figures.waited(actor.name, held_by, waited_s)
        cell = actor.cells[0]
        actor.asked_at, actor.gpu = None, gpu
        self._note_waiting(actor)
        run = _Run(actor, cell, actor.again_s, cell.length_s + actor.again_s, self.now, self.now)
        self._running[gpu].append(run)
        self.share_anew(gpu)

    def break_off(self, actor: Actor) -> None:
        """Its running cell is stopped, and the user runs it again: it asks at once."""
        run = self._stop(actor)
        done_s = run.cell.length_s + run.again_s - run.left_s
        self.figures.broken_off += 1
        self.figures.again_s += done_s
        self._ask(actor)

    def fail(self, actor: Actor) -> None:
        """Its first cell ends without a result: there is too little memory for it where it is."""
        if actor.asked_at is None:
            raise ValueError(f"{actor.name} asks for no GPU")
        self._count(actor, actor.cell_waited_s + self.now - actor.asked_at, served=False)
        self.figures.out_of_memory += 1
        self._next_cell(actor)

    def lose(self, actor: Actor) -> None:
        """What it held on its Gpu is lost: the user computes its last cells again before the next one."""
        if not actor.state_bytes:
            return
        lost = list(actor.lately_s)[-int(self.costs.again_cells) :] if self.costs.again_cells >= 1 else []
        actor.again_s = max(actor.again_s, sum(lost))
        actor.state_bytes = 0
        self.figures.lost += 1

    def reserve(self, gpus: float) -> None:
        """So many Gpus more (or fewer) are kept for somebody from now on."""
        self._note_reserved()
        self._reserved += gpus

    def line_up(self, actor: Actor) -> None:
        """It has no place from now on, whether or not a cell of it wants a Gpu."""
        actor.in_line = True
        self._note_waiting(actor)

    def let_in(self, actor: Actor) -> None:
        """It has its place, and waits only when a cell of it does."""
        actor.in_line = False
        self._note_waiting(actor)

    def _take(self, row: Row) -> None:
        if isinstance(row, Cell):
            actor = self._newest[row.name]
            actor.cells.append(row)
            if len(actor.cells) == 1:
                self._ask(actor)
            return
        request, limit = (to_bytes(size, self.gpu_bytes) for size in (row.request, row.limit))
        is_command = isinstance(row, Command)
        name, number = row.name, 1
        while name in self.actors:  # its last cell outlasts its session, or a command is called the same
            number += 1
            name = f"{row.name} ({number})"
        length_s = row.end_s - row.begin_s
        actor = Actor(name, row.name, is_command, request, limit, row.priority, row.queue, self.now, length_s)
        actor.idle_since = self.now
        self.actors[name] = actor
        self.policy.arrives(actor)
        if isinstance(row, Session):
            self._newest[row.name] = actor
            self._sequence += 1
            heapq.heappush(self._ends, (row.end_s, self._sequence, actor))
        else:
            actor.cells.append(Cell(name, row.begin_s, row.end_s, row.memory_bytes, 0))
            self._ask(actor)

    def _ask(self, actor: Actor) -> None:
        actor.asked_at = self.now
        self._note_waiting(actor)
        self.policy.asks(actor)

    def _reach_ends(self) -> None:
        """All that end in this moment: none of them gets what another one of them leaves."""
        going = []
        while self._ends and self._ends[0][0] <= self.now:
            going.append(heapq.heappop(self._ends)[2])
        for actor in going:
            actor.leaving = True
            self._give_up(actor)
        # Who waits goes first, then whoever came last: a place that is left goes to nobody who goes as well.
        going.reverse()
        going.sort(key=lambda actor: actor.waits_since is None)
        for actor in going:
            if actor.gpu is None:
                self._leave(actor)

    def _give_up(self, actor: Actor) -> None:
        """Whatever of it does not compute now has waited in vain since its user ran it."""
        while len(actor.cells) > (actor.gpu is not None):
            self.figures.never_ran += 1
            self._count(actor, self.now - actor.cells.pop().begin_s, served=False)
        actor.asked_at = None

    def _leave(self, actor: Actor) -> None:
        self._give_up(actor)
        self._note_stay(actor)
        del self.actors[actor.name]
        if self._newest.get(actor.called) is actor:
            del self._newest[actor.called]
        self.policy.leaves(actor)

    def _note_stay(self, actor: Actor) -> None:
        open_s = self.now - actor.arrived_at
        waiting_s = actor.waited_s + (0.0 if actor.waits_since is None else self.now - actor.waits_since)
        self.figures.open_s += open_s
        self.figures.waiting_s += waiting_s
        self.figures.whole_gpu_s += min(open_s - waiting_s, actor.recorded_s)

    def _note_waiting(self, actor: Actor) -> None:
        waits = actor.in_line or actor.asked_at is not None
        if waits and actor.waits_since is None:
            actor.waits_since = self.now
        elif not waits and actor.waits_since is not None:
            actor.waited_s += self.now - actor.waits_since
            actor.waits_since = None

    def _count(self, actor: Actor, waited_s: float, *, served: bool) -> None:
        """A cell of it is over, with or without a result: each is, once."""
        (self.figures.command_waits if actor.is_command else self.figures.waits).add(waited_s, served=served)

    def _end_of(self, run: _Run, version: int) -> None:
        if run.version != version:
            return  # its rate has changed since, or it was stopped
        actor, cell = run.actor, run.cell
        self._stop(actor)
        self._count(actor, actor.cell_waited_s, served=True)
        self.figures.used_s += cell.length_s
        self.figures.again_s += run.again_s
        self.figures.slowed_s += max(0.0, self.now - run.began_at - cell.length_s - run.again_s)
        actor.again_s, actor.state_bytes, actor.idle_since = 0.0, cell.state_bytes, self.now
        actor.lately_s.append(cell.length_s)
        while len(actor.lately_s) > max(1, self.costs.again_cells):
            actor.lately_s.popleft()
        self.policy.finished(actor, cell)
        self._next_cell(actor)

    def _next_cell(self, actor: Actor) -> None:
        actor.cells.popleft()
        actor.asked_at, actor.cell_waited_s = None, 0.0
        self._note_waiting(actor)
        if actor.is_command or actor.leaving:
            self._leave(actor)
        elif actor.cells:
            self._ask(actor)

    def _stop(self, actor: Actor) -> _Run:
        gpu = actor.gpu
        if gpu is None:
            raise ValueError(f"no cell of {actor.name} computes")
        run = next(run for run in self._running[gpu] if run.actor is actor)
        self._settle(gpu)
        run.version += 1
        self._running[gpu].remove(run)
        actor.gpu = None
        self.share_anew(gpu)
        return run

    def _settle(self, gpu: int) -> None:
        for run in self._running[gpu]:
            run.left_s = max(0.0, run.left_s - (self.now - run.since) * run.rate)
            run.since = self.now

    def share_anew(self, gpu: int) -> None:
        """The rates of those who compute on `gpu` may have changed."""
        runs = self._running[gpu]
        self._settle(gpu)
        actors = [run.actor for run in runs]
        for run in runs:
            run.rate = self.policy.rate(run.actor, actors)
            run.version += 1
            if run.rate > 0:
                # To the microsecond: what ends in one moment must not end a rounding apart.
                self.at(round(self.now + run.left_s / run.rate, 6), self._end(run, run.version))
        self._note_busy(gpu, computes=bool(runs))

    def _end(self, run: _Run, version: int) -> Callable[[], None]:
        return lambda: self._end_of(run, version)

    def _note_busy(self, gpu: int, *, computes: bool) -> None:
        since = self._busy_since.get(gpu)
        if computes and since is None:
            self._busy_since[gpu] = self.now
        elif not computes and since is not None:
            self.figures.busy(gpu, since, self.now)
            del self._busy_since[gpu]

    def _note_reserved(self) -> None:
        self.figures.reserved_s += self._reserved * (self.now - self._reserved_since)
        self._reserved_since = self.now


def equal_rate(costs: Costs, beside: list[Actor]) -> float:
    """Of `n` cells that compute at once each goes at 1/n, as far as they need the Gpu at all (`Costs.gpu_part`)."""
    return 1.0 / (1.0 + (len(beside) - 1) * costs.gpu_part)
