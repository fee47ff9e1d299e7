"""A fixed part of a Gpu's memory for each notebook, for its life: no more, and nobody moves.

Source: HAMi 2.10 (`nvidia.com/gpumem`, kept by a preloaded library) and KAI Scheduler's `gpu-fraction` annotation: a
request without a higher limit. A cell that needs more than the part fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.play.stage import Actor, equal_rate
from nls_scheduler.what_if.policies.packing import Packing

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Stage
    from nls_scheduler.what_if.workload_file.rows import Cell


class FixedFractions:
    """The request is the limit."""

    name = "fractions"
    title = "Fixed fractions"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._packing = Packing(stage)

    def arrives(self, actor: Actor) -> None:
        """A place, or the line."""
        self._begin(self._packing.come(actor))

    def asks(self, actor: Actor) -> None:
        """At once where it has its place; out of memory where the cell needs more than that."""
        if actor not in self._packing.place:
            return
        if actor.next_memory_bytes > actor.request_bytes:
            self._stage.fail(actor)
        else:
            self._stage.compute(actor, self._packing.place[actor])

    def finished(self, actor: Actor, cell: Cell) -> None:
        """It keeps its part."""

    def leaves(self, actor: Actor) -> None:
        """Its part is free."""
        self._begin(self._packing.go(actor))

    def rate(self, actor: Actor, beside: list[Actor]) -> float:
        """Computing time is not partitioned."""
        del actor
        return equal_rate(self._stage.costs, beside)

    def _begin(self, served: list[Actor]) -> None:
        for actor in served:
            if actor.asked_at is not None:
                self.asks(actor)
