"""A request below the limit; whoever is above their request is killed when its memory is needed.

Source: KAI Scheduler 0.18 with gpu-fractioning, or with MPS: the driver (r615) keeps a soft and a hard limit for each
container; nobody moves, the container or its client is killed. The one that is furthest above its request goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.packing import Packed

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor, Stage


class Killing(Packed):
    """Places by request, for life; memory up to the limit while it is there. Allocators keep what a cell had."""

    name = "kill"
    title = "Request below limit, killed when short"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._held: dict[Actor, int] = {}
        self._starting: set[Actor] = set()

    def asks(self, actor: Actor) -> None:
        """Whoever is above their request makes room; where that is not enough the cell is out of memory."""
        if actor not in self.place or actor in self._starting:
            return
        wanted = actor.next_memory_bytes
        if wanted > actor.limit_bytes or not self._make_room(actor, wanted):
            self._stage.fail(actor)
            return
        self._held[actor] = max(wanted, self._held.get(actor, 0))
        super().asks(actor)

    def leaves(self, actor: Actor) -> None:
        """Its place and its memory are free."""
        self._held.pop(actor, None)
        self._starting.discard(actor)
        super().leaves(actor)

    def _make_room(self, actor: Actor, wanted: int) -> bool:
        gpu = self.place[actor]
        others = [other for other, place in self.place.items() if place == gpu and other is not actor]
        while sum(self._held.get(other, 0) for other in others) + wanted > self._stage.gpu_bytes:
            above = [other for other in others if self._held.get(other, 0) > other.request_bytes]
            if not above or wanted > actor.request_bytes:
                return False
            self._kill(max(above, key=lambda other: (self._held[other] - other.request_bytes, other.name)), actor)
        return True

    def _kill(self, actor: Actor, for_whom: Actor) -> None:
        del self._held[actor]
        self._held_by[actor] = (for_whom.name,)
        self._starting.add(actor)
        self._stage.lose(actor)
        if actor.gpu is not None:
            self._stage.break_off(actor)
        start_s = self._stage.costs.start_s(0, standing_by=False)
        self._stage.at(self._stage.now + start_s, lambda: self._back(actor))

    def _back(self, actor: Actor) -> None:
        if actor in self._starting:
            self._starting.remove(actor)
            self._begin(actor)
