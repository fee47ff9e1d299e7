"""Packed on paper, spread in fact; who is in a newcomer's way goes home, and loses its GPU memory.

Source: Run:ai 2.x, Node Level Scheduler (closed; as its documentation described it): burstable pods run on idle Gpus of
their node, and where one is needed only the GPU process is ended and starts again at home, without its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.packing import Packed

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor, Stage


class MemoryLost(Packed):
    """Homes by request, places where fewest are; the requests of those who are on a Gpu fit on it."""

    name = "memory-lost"
    title = "Moves that lose the memory"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._current: dict[Actor, int] = {}
        self._starting: set[Actor] = set()

    def asks(self, actor: Actor) -> None:
        """At once where its process is."""
        if actor not in self._current or actor in self._starting:
            return
        beside = sum(self._size(other) for other in self._on(self._current[actor]) if other is not actor)
        wanted = actor.next_memory_bytes
        if wanted > actor.limit_bytes or beside + wanted > self._stage.gpu_bytes:
            self._stage.fail(actor)
        else:
            self._compute(actor, self._current[actor])

    def leaves(self, actor: Actor) -> None:
        """Its home and its place are free."""
        self._current.pop(actor, None)
        self._starting.discard(actor)
        super().leaves(actor)

    def _begin(self, actor: Actor) -> None:
        if actor not in self._current:
            self._place(actor)
        super()._begin(actor)

    def _place(self, actor: Actor) -> None:
        """On an idle Gpu, else at home, from where those go who only borrow there."""
        idle = [gpu for gpu in range(self._stage.gpus) if not self._on(gpu)]
        if idle and actor.limit_bytes > actor.request_bytes:
            self._current[actor] = idle[0]
            return
        home = self.place[actor]
        self._current[actor] = home
        while sum(other.request_bytes for other in self._on(home)) > self._stage.gpu_bytes:
            borrowers = [other for other in self._on(home) if self.place[other] != home]
            self._send_home(borrowers[-1], actor)

    def _send_home(self, actor: Actor, for_whom: Actor) -> None:
        home = self.place[actor]
        self._held_by[actor] = (for_whom.name,)
        del self._current[actor]
        self._stage.lose(actor)
        self._stage.figures.moved(self._stage.now, 0)
        self._starting.add(actor)
        if actor.gpu is not None:
            self._stage.break_off(actor)
        self._current[actor] = home
        while sum(other.request_bytes for other in self._on(home)) > self._stage.gpu_bytes:
            borrowers = [other for other in self._on(home) if self.place[other] != home]
            self._send_home(borrowers[-1], actor)
        start_s = self._stage.costs.start_s(0, standing_by=False)
        self._stage.at(self._stage.now + start_s, lambda: self._back(actor))

    def _back(self, actor: Actor) -> None:
        if actor in self._starting:
            self._starting.remove(actor)
            self._begin(actor)

    def _on(self, gpu: int) -> list[Actor]:
        return [actor for actor, current in self._current.items() if current == gpu]

    def _size(self, actor: Actor) -> int:
        return max(actor.state_bytes, actor.next_memory_bytes if actor.gpu is not None else 0)
