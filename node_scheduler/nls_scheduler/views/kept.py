"""Entries of the status as they were made last: of a thousand workloads few have changed since somebody looked."""

from __future__ import annotations

import time
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.views.sentences import Names
from nls_scheduler.views.status import in_order, waiting_s, workload_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.views.veil import Viewer

MadeOf = tuple[object, ...]
VIEWERS_KEPT: Final = 4
_CLOCK_MOVED_S: Final = 0.1


class KeptEntries:
    """For the few who looked last. An entry is made anew as soon as anything that it is made of is another object."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._offset_s = 0.0
        self._of_node: MadeOf = ()
        self._kept: dict[Viewer, dict[WorkloadId, tuple[MadeOf, dict[str, Any]]]] = {}

    def of(self, state: NodeState, now: float, viewer: Viewer) -> list[dict[str, Any]]:
        """What `workload_view` makes of each at `now`, in their order; the caller may change what it gets."""
        self._forget_if_other(of_node(state), self._wall_clock() - now)
        kept, names = self._kept.pop(viewer, {}), Names.of(state, viewer)
        made: dict[WorkloadId, tuple[MadeOf, dict[str, Any]]] = {}
        for workload in in_order(state):
            parts, known = made_of(state, workload), kept.get(workload.id)
            # How long its user still keeps it is told by the clock.
            if known is None or workload.keep_until is not None or not all(map(is_, parts, known[0])):
                known = parts, workload_view(state, workload, now, names)
            made[workload.id] = known
        self._kept[viewer] = made
        if len(self._kept) > VIEWERS_KEPT:
            del self._kept[next(iter(self._kept))]
        return [{**view, "waiting_s": waiting_s(state.workloads[key], now)} for key, (_, view) in made.items()]

    def _forget_if_other(self, node: MadeOf, offset_s: float) -> None:
        """Where Gpus are called otherwise every sentence may be another, and where the clock was set every time."""
        if node != self._of_node or abs(offset_s - self._offset_s) > _CLOCK_MOVED_S:
            self._of_node, self._offset_s = node, offset_s
            self._kept.clear()


def of_node(state: NodeState) -> MadeOf:
    """What the entry of every workload is made of."""
    return tuple((gpu.uuid, gpu.label) for gpu in state.gpus.values()), state.claims


def made_of(state: NodeState, workload: Workload) -> MadeOf:
    """What else that of one is made of."""
    entry = state.plan.get(workload.id)
    return workload, entry, None if entry is None or entry.cause is None else state.workloads.get(entry.cause)
