"""Idle notebooks that leave their Gpus for nobody: where their pool wants that, and before their node is emptied. Pure.

A node that takes no new pods is about to be emptied: its idle notebooks leave one after another. Who borrows leaves
first, then the least harm. What a notebook has is in memory then, and whatever ends its pod has only that to put away.

No cell is interrupted for it, whoever is kept by its user stays, and the next cell brings a notebook back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.making_room.victims import harm, may_be_suspended_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def anybody_may(state: NodeState) -> bool:
    """Whether there is a reason for which an idle notebook leaves its Gpu for nobody."""
    return state.claims.cordoned or any(pool.idle_suspend_s is not None for pool in state.policy.all_pools)


def leave_when_idle(state: NodeState, alive: Sequence[Workload]) -> tuple[dict[WorkloadId, Why], list[float]]:
    """Who leaves now, each with the reason; and from when on anybody does."""
    if not anybody_may(state):
        return {}, []
    cordoned = [(at, w) for w in alive if (at := _cordoned_at(state, w)) is not None]
    leave, times = _leaves_cordoned(state, alive, cordoned), [at for at, _ in cordoned]
    for workload in alive:
        idle_s = _idle_suspend_s(state, workload)
        if idle_s is None or (at := _idle_at(workload, idle_s)) is None:
            continue
        times.append(at)
        if at <= state.at:
            leave[workload.id] = Why(Reason.IDLE, numbers=(idle_s,))
    return leave, times


def _idle_suspend_s(state: NodeState, workload: Workload) -> float | None:
    """For how long it may be idle where it is, the shortest time of its pools; `None`: for ever."""
    pools = [state.policy.pool_of(state.gpus[uuid]) for uuid in workload.current if uuid in state.gpus]
    return min((pool.idle_suspend_s for pool in pools if pool.idle_suspend_s is not None), default=None)


def _idle_at(workload: Workload, idle_s: float) -> float | None:
    """When a notebook will have been idle for that long, and is kept by nobody; `None`: not as things are."""
    if workload.spec.kind is not Kind.NOTEBOOK or workload.phase is not Phase.RUNNING or workload.executing:
        return None
    return None if workload.idle_since is None else max(workload.idle_since + idle_s, workload.keep_until or 0.0)


def _leaves_cordoned(
    state: NodeState, alive: Sequence[Workload], cordoned: Sequence[tuple[float, Workload]]
) -> dict[WorkloadId, Why]:
    """The one that leaves next, if it is time for one: nobody does while another is on its way off its Gpu."""
    due = [w for at, w in cordoned if at <= state.at]
    if not due or any(w.phase is Phase.SUSPENDING for w in alive):
        return {}
    first = min(due, key=lambda w: (not w.borrowed, harm(w, state.at)))
    return {first.id: Why(Reason.CORDONED, numbers=(state.policy.cordoned_idle_s or 0.0,))}


def _cordoned_at(state: NodeState, workload: Workload) -> float | None:
    """From when on a notebook may be asked to leave a cordoned node; `None`: not as long as everything is as it is."""
    idle_s = state.policy.cordoned_idle_s
    at = _idle_at(workload, idle_s) if state.claims.cordoned and idle_s is not None else None
    return None if at is None else max(at, may_be_suspended_from(state, workload))
