"""A whole Gpu for each notebook, from its begin to its end; who comes later waits in line.

Source: NVIDIA's device plugin for Kubernetes, whose resource `nvidia.com/gpu` counts whole devices, for a pod's life.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nls_scheduler.what_if.play.stage import Actor, equal_rate

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Stage
    from nls_scheduler.what_if.workload_file.rows import Cell


class WholeGpu:
    """First come, first served."""

    name = "whole"
    title = "A whole GPU each"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._free = list(range(stage.gpus))
        self._line: deque[Actor] = deque()
        self._has: dict[Actor, int] = {}
        self._from: dict[Actor, tuple[str, ...]] = {}

    def arrives(self, actor: Actor) -> None:
        """Into the line; the first of it gets what is free."""
        self._line.append(actor)
        self._serve(())

    def asks(self, actor: Actor) -> None:
        """At once, where it has its Gpu."""
        if actor in self._has:
            self._stage.compute(actor, self._has[actor], held_by=self._from.pop(actor, ()))

    def finished(self, actor: Actor, cell: Cell) -> None:
        """It keeps the Gpu."""

    def leaves(self, actor: Actor) -> None:
        """The next one's turn."""
        if actor in self._line:
            self._line.remove(actor)
        self._from.pop(actor, None)
        self._take_away(actor)

    def rate(self, actor: Actor, beside: list[Actor]) -> float:
        """It is alone."""
        del actor
        return equal_rate(self._stage.costs, beside)

    def _take_away(self, actor: Actor) -> None:
        if actor in self._has:
            self._free.append(self._has.pop(actor))
            self._stage.reserve(-1)
            self._serve((actor.name,))

    def _serve(self, left_by: tuple[str, ...]) -> None:
        while self._free and self._line:
            actor = self._line.popleft()
            self._has[actor] = min(self._free)
            self._free.remove(self._has[actor])
            self._from[actor] = left_by
            self._stage.reserve(1)
            self._begin(actor)

    def _begin(self, actor: Actor) -> None:
        if actor.asked_at is not None:
            self.asks(actor)
