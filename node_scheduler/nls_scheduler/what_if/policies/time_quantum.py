"""Any number of notebooks on a Gpu; one computes at a time, for a quantum, with all of the memory.

Source: nvshare (G. Alexopoulos, thesis; github.com/grgalex/nvshare): managed memory is paged in and out
by the driver, a scheduler gives one process the Gpu for 30 s. nvshare itself serves one Gpu; here each Gpu has its own
line, and a notebook stays where it began: where fewest are.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.base import Base

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor, Stage
    from nls_scheduler.what_if.workload_file.rows import Cell


class TimeQuantum(Base):
    """In turns, in the order in which they asked."""

    name = "quantum"
    title = "Turns of 30 seconds"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._place: dict[Actor, int] = {}
        self._line: list[deque[Actor]] = [deque() for _ in range(stage.gpus)]
        self._turn: list[int] = [0] * stage.gpus
        self._quanta_since: list[float | None] = [None] * stage.gpus
        self._paging: set[int] = set()
        self._last: list[Actor | None] = [None] * stage.gpus

    def arrives(self, actor: Actor) -> None:
        """Where fewest are; nobody is refused."""
        there = [sum(place == gpu for place in self._place.values()) for gpu in range(self._stage.gpus)]
        self._place[actor] = there.index(min(there))
        self._stage.reserve(1.0 if not min(there) else 0.0)

    def asks(self, actor: Actor) -> None:
        """Its turn, or the line."""
        if actor.next_memory_bytes > self._stage.gpu_bytes:
            self._stage.fail(actor)
            return
        gpu = self._place[actor]
        self._line[gpu].append(actor)
        if self._line[gpu][0] is actor:
            self._begin_turn(gpu)
        else:
            self._time_turn(gpu)

    def finished(self, actor: Actor, cell: Cell) -> None:
        """The next one's turn."""
        del cell
        self._take_out(actor)

    def leaves(self, actor: Actor) -> None:
        """It is in nobody's way any more."""
        gpu = self._place[actor]
        self._take_out(actor)
        del self._place[actor]
        self._stage.reserve(0.0 if gpu in self._place.values() else -1.0)

    def rate(self, actor: Actor, beside: list[Actor]) -> float:
        """All for whoever's turn it is."""
        del beside
        gpu = self._place[actor]
        line = self._line[gpu]
        return 1.0 if line and line[0] is actor and gpu not in self._paging else 0.0

    def _take_out(self, actor: Actor) -> None:
        gpu = self._place[actor]
        line = self._line[gpu]
        if actor in line:
            was_first = line[0] is actor
            line.remove(actor)
            if was_first:
                self._paging.discard(gpu)
                self._begin_turn(gpu)

    def _begin_turn(self, gpu: int) -> None:
        self._turn[gpu] += 1
        self._quanta_since[gpu] = None
        turn, line = self._turn[gpu], self._line[gpu]
        if not line:
            return
        actor, before, page_s = line[0], self._last[gpu], 0.0
        held = sum(max(a.state_bytes, a.next_memory_bytes) for a, place in self._place.items() if place == gpu)
        # What a cell has not held yet does not come from anywhere.
        back_bytes = actor.state_bytes if actor.gpu is None else actor.next_memory_bytes
        if before is not actor and back_bytes and held > self._stage.gpu_bytes:
            page_s = back_bytes / self._stage.costs.paging_bytes_per_s
            self._stage.figures.moved(self._stage.now, back_bytes)
            self._paging.add(gpu)
            self._stage.share_anew(gpu)
        self._last[gpu] = actor
        held_by = () if before is None or before is actor else (before.name,)
        self._stage.at(self._stage.now + page_s, lambda: self._paged(gpu, turn, held_by))

    def _paged(self, gpu: int, turn: int, held_by: tuple[str, ...]) -> None:
        if turn != self._turn[gpu]:
            return
        self._paging.discard(gpu)
        actor = self._line[gpu][0]
        if actor.asked_at is not None:
            self._stage.compute(actor, gpu, held_by=held_by)
        else:
            self._stage.share_anew(gpu)
        self._quanta_since[gpu] = self._stage.now
        self._time_turn(gpu)

    def _time_turn(self, gpu: int) -> None:
        """It ends with the quantum that has begun; nobody looks at the clock for one who is alone."""
        turn, since, quantum_s = self._turn[gpu], self._quanta_since[gpu], self._stage.costs.quantum_s
        if since is not None and len(self._line[gpu]) > 1:
            whole = (self._stage.now - since) // quantum_s
            self._stage.at(since + (whole + 1) * quantum_s, lambda: self._end_turn(gpu, turn))

    def _end_turn(self, gpu: int, turn: int) -> None:
        line = self._line[gpu]
        if turn == self._turn[gpu] and len(line) > 1:
            line.rotate(-1)
            self._stage.share_anew(gpu)
            self._begin_turn(gpu)
