"""A request below the limit; whoever is above their request is killed when its memory is needed.

Source: KAI Scheduler 0.18 with gpu-fractioning, or with MPS: the driver (r615) keeps a soft and a hard limit for each
container; nobody moves, the container or its client is killed. The one that is furthest above its request goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.play.stage import Actor, equal_rate
from nls_scheduler.what_if.policies.packing import Packing

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Stage
    from nls_scheduler.what_if.workload_file.rows import Cell


class Killing:
    """Places by request, for life; memory up to the limit while it is there."""

    name = "kill"
    title = "Request below limit, killed when short"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._packing = Packing(stage)
        self._held: dict[Actor, int] = {}
        self._starting: set[Actor] = set()

    def arrives(self, actor: Actor) -> None:
        """A place, or the line."""
        self._begin(self._packing.come(actor))

    def asks(self, actor: Actor) -> None:
        """Whoever is above their request makes room; where that is not enough the cell is out of memory."""
        gpu = self._packing.place.get(actor)
        if gpu is None or actor in self._starting:
            return
        wanted = actor.next_memory_bytes
        if wanted > actor.limit_bytes or not self._make_room(actor, gpu, wanted):
            self._stage.fail(actor)
            return
        self._held[actor] = max(wanted, self._held.get(actor, 0))
        self._stage.compute(actor, gpu)

    def finished(self, actor: Actor, cell: Cell) -> None:
        """Allocators keep what a cell had: nobody asks for it back."""

    def leaves(self, actor: Actor) -> None:
        """Its place and its memory are free."""
        self._held.pop(actor, None)
        self._starting.discard(actor)
        self._begin(self._packing.go(actor))

    def rate(self, actor: Actor, beside: list[Actor]) -> float:
        """Computing time is not partitioned."""
        del actor
        return equal_rate(self._stage.costs, beside)

    def _make_room(self, actor: Actor, gpu: int, wanted: int) -> bool:
        others = [other for other in self._packing.on(gpu) if other is not actor]
        while sum(self._held.get(other, 0) for other in others) + wanted > self._stage.gpu_bytes:
            above = [other for other in others if self._held.get(other, 0) > other.request_bytes]
            if not above or wanted > actor.request_bytes:
                return False
            self._kill(max(above, key=lambda other: (self._held[other] - other.request_bytes, other.name)))
        return True

    def _kill(self, actor: Actor) -> None:
        del self._held[actor]
        self._starting.add(actor)
        self._stage.lose(actor)
        if actor.gpu is not None:
            self._stage.break_off(actor)
        start_s = self._stage.costs.start_s(0, standing_by=False)
        self._stage.at(self._stage.now + start_s, lambda: self._back(actor))

    def _back(self, actor: Actor) -> None:
        if actor in self._starting:
            self._starting.remove(actor)
            self._begin([actor])

    def _begin(self, served: list[Actor]) -> None:
        for actor in served:
            if actor.asked_at is not None:
                self.asks(actor)
