"""A fixed part of a Gpu's memory for each notebook, for its life: no more, and nobody moves.

Source: HAMi 2.10 (`nvidia.com/gpumem`, kept by a preloaded library) and KAI Scheduler's `gpu-fraction` annotation: a
request without a higher limit. A cell that needs more than the part fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.packing import Packed

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor


class FixedFractions(Packed):
    """The request is the limit."""

    name = "fractions"
    title = "Fixed fractions"

    def asks(self, actor: Actor) -> None:
        """At once where it has its place; out of memory where the cell needs more than that."""
        if actor in self.place and actor.next_memory_bytes > actor.request_bytes:
            self._stage.fail(actor)
        else:
            super().asks(actor)
