"""Places for those policies that keep a share of one Gpu for a notebook's life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.base import Base

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor, Stage


class Packed(Base):
    """A place on the fullest Gpu that has the room, or the line: first come, first served.

    Attributes:
        place: whose share is kept, and on which Gpu.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.place: dict[Actor, int] = {}
        self._room = [stage.gpu_bytes] * stage.gpus
        self._line: list[Actor] = []
        self._held_by: dict[Actor, tuple[str, ...]] = {}

    def share_bytes(self, actor: Actor) -> int:
        """What is kept for it of one Gpu."""
        return actor.request_bytes

    def arrives(self, actor: Actor) -> None:
        """A place, or the line."""
        self._line_up(actor)

    def asks(self, actor: Actor) -> None:
        """At once, where it has its place."""
        if actor in self.place:
            self._compute(actor, self.place[actor])

    def leaves(self, actor: Actor) -> None:
        """Its place is free."""
        self._held_by.pop(actor, None)
        if actor in self._line:
            self._line.remove(actor)
        self._give_back(actor)

    def _line_up(self, actor: Actor) -> None:
        self._line.append(actor)
        self._stage.line_up(actor)
        self._serve(())

    def _give_back(self, actor: Actor) -> None:
        if actor in self.place:
            self._room[self.place.pop(actor)] += self.share_bytes(actor)
            self._stage.reserve(-self.share_bytes(actor) / self._stage.gpu_bytes)
        self._serve((actor.name,))

    def _serve(self, left_by: tuple[str, ...]) -> None:
        served = []
        while self._line:
            actor, share_bytes = self._line[0], self.share_bytes(self._line[0])
            fitting = [gpu for gpu, room in enumerate(self._room) if room >= share_bytes]
            if not fitting:
                break
            gpu = min(fitting, key=lambda gpu: (self._room[gpu], gpu))
            self._room[gpu] -= share_bytes
            self.place[actor] = gpu
            self._held_by[actor] = left_by
            self._stage.reserve(share_bytes / self._stage.gpu_bytes)
            self._stage.let_in(actor)
            served.append(self._line.pop(0))
        for actor in served:
            self._begin(actor)

    def _begin(self, actor: Actor) -> None:
        """It has its place, or is there again: if its cell waits for that, it asks."""
        if actor.asked_at is not None:
            self.asks(actor)

    def _compute(self, actor: Actor, gpu: int) -> None:
        self._stage.compute(actor, gpu, held_by=self._held_by.pop(actor, ()))
