"""The first rung of the ladder: caches are given back before anybody is moved, suspended or stopped.

A cause is known by its beginning: who was trimmed since then is not trimmed for it again. The next rung follows when
the driver has shown what a trim freed, and never later than the trim's own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Order, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload

# Of the time until a deadline, the part that a trim may take: the other rungs need the rest.
_PART_OF_DEADLINE = 0.25


def wanted_from(state: NodeState, short: Mapping[GpuUuid, float]) -> dict[WorkloadId, float]:
    """Who is to give caches back, and since when there is reason to: all who hold more than their request there.

    Args:
        state: as it is.
        short: since when memory is short, by Gpu.
    """
    since: dict[WorkloadId, float] = {}
    for workload in state.workloads.values() if short else ():
        times = [short[uuid] for uuid in workload.current if uuid in short]
        if times and _can_trim(workload):
            since[workload.id] = min(times)
    return since


def _can_trim(workload: Workload) -> bool:
    running = workload.phase is Phase.RUNNING and workload.spec.kind is Kind.NOTEBOOK
    return running and workload.measured and workload.over_request_bytes > 0


def is_due(workload: Workload, entry: PlanEntry) -> bool:
    """Whether `workload` is to be told now: once for each cause."""
    if entry.trim_since is None or workload.trim is not None or not _can_trim(workload):
        return False
    return workload.trimmed_at is None or workload.trimmed_at < entry.trim_since


def is_open(state: NodeState, workload: Workload, entry: PlanEntry) -> bool:
    """Whether a victim waits for what trims of those on its Gpus free, its own among them."""
    if entry.trim_since is None:
        return False
    there = (w for w in state.workloads.values() if set(w.current) & set(workload.current))
    return is_any_open(state, there)


def is_any_open(state: NodeState, workloads: Iterable[Workload]) -> bool:
    """Whether a trim of one of them is due, under way, or not shown by the driver yet."""
    return any(w.trim is not None or _is_unseen(state, w) or is_due(w, state.plan[w.id]) for w in workloads)


def _is_unseen(state: NodeState, workload: Workload) -> bool:
    """Whether a trim was answered, and no sample has been taken since: what it freed is not known yet."""
    return workload.trim_shows_by is not None and state.at < workload.trim_shows_by


def order(workload: Workload, entry: PlanEntry) -> Order | None:
    """For who stays: give caches back, because memory is short there."""
    return Order.TRIM if is_due(workload, entry) else None


def deadline_at(state: NodeState, entry: PlanEntry) -> float:
    """When a trim that is ordered now counts as done, whatever became of it."""
    at = state.at + state.policy.trim_timeout_s
    if entry.deadline_at is None:
        return at
    return min(at, state.at + max(0.0, entry.deadline_at - state.at) * _PART_OF_DEADLINE)
