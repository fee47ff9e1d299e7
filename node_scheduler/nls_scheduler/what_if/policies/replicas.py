"""A whole Gpu is bound when a cell begins and given back when it ends; what it needs is loaded each time.

Source: NotebookOS (ASPLOS '26): three replicas of a kernel on different servers, the one whose server has an idle Gpu
runs the cell. Here on the Gpus of one node, so that any idle Gpu will do.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.base import Base

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.what_if.play.stage import Actor, Stage
    from nls_scheduler.what_if.workload_file.rows import Cell


class Replicas(Base):
    """Cells wait in line for an idle Gpu, first come, first served."""

    name = "replicas"
    title = "A whole GPU bound at each cell's start"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._idle = list(range(stage.gpus))
        self._line: deque[Actor] = deque()
        self._bound: dict[Actor, int] = {}

    def asks(self, actor: Actor) -> None:
        """An idle Gpu, or the line."""
        if actor.next_memory_bytes > self._stage.gpu_bytes:
            self._stage.fail(actor)
            return
        self._line.append(actor)
        self._serve(())

    def finished(self, actor: Actor, cell: Cell) -> None:
        """What it holds goes to host memory, and the Gpu to the next one."""
        del cell
        self._give_back(actor)

    def leaves(self, actor: Actor) -> None:
        """It waits no longer."""
        if actor in self._line:
            self._line.remove(actor)
        self._give_back(actor)

    def _give_back(self, actor: Actor) -> None:
        if actor in self._bound:
            self._idle.append(self._bound.pop(actor))
            self._stage.reserve(-1)
            self._serve((actor.name,))

    def _serve(self, left_by: tuple[str, ...]) -> None:
        while self._idle and self._line:
            actor, gpu = self._line.popleft(), min(self._idle)
            self._idle.remove(gpu)
            self._bound[actor] = gpu
            self._stage.reserve(1)
            costs = self._stage.costs
            load_s = costs.replica_s + actor.state_bytes / costs.restore_bytes_per_s
            self._stage.at(self._stage.now + load_s, self._loaded(actor, gpu, left_by))

    def _loaded(self, actor: Actor, gpu: int, left_by: tuple[str, ...]) -> Callable[[], None]:
        def begin() -> None:
            if self._bound.get(actor) == gpu and actor.asked_at is not None:
                if actor.lately_s:  # else it has never been anywhere
                    self._stage.figures.moved(self._stage.now, actor.state_bytes)
                self._stage.compute(actor, gpu, held_by=left_by)

        return begin
