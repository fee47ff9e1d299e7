"""The rung between the wait for the end of a cell and its interrupt: the process is frozen, and its cell stands still.

The driver takes the process's memory to host memory and brings it back in place, so a frozen process waits for room on
the one Gpu where it was. At home it is owed its request there; elsewhere it waits as for burst. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.planning.making_room.rooms import has_room

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Frozen, Workload


def may_freeze(state: NodeState, workload: Workload) -> bool:
    """Whether the running cell of `workload` may stand still: its driver can, its pool wants it, nothing failed yet."""
    if not workload.freezable or workload.freeze_trouble is not None or workload.interrupt is not None:
        return False
    is_one = workload.spec.kind is Kind.NOTEBOOK and workload.spec.movable and workload.executing
    if not is_one or workload.release_reason is not None:
        return False
    if not workload.spec.may_borrow and workload.home and workload.home != workload.current:
        return False  # it goes to its new home, and could never go on where it is
    return all(state.gpus[uuid].healthy and state.policy.freezes_in(state.pools[uuid]) for uuid in workload.current)


def freeze_at(state: NodeState, workload: Workload, deadline_at: float) -> float:
    """When a cell that has to leave by `deadline_at` is frozen: as late as leaves the driver its time."""
    return state.policy.freeze_at(deadline_at, state.told_since(workload))


def is_due(state: NodeState, workload: Workload, entry: PlanEntry) -> bool:
    """Whether `workload` is to be frozen now; later than the interrupt is due there is no time for it any more."""
    if entry.deadline_at is None or not may_freeze(state, workload):
        return False
    if entry.cause is not None and _may_stand_elsewhere(state, entry.cause):
        return False
    return freeze_at(state, workload, entry.deadline_at) <= state.at < state.policy.interrupt_at(entry.deadline_at)


def beside_bytes(state: NodeState, workload: Workload) -> int:
    """What others, told to freeze and not heard of since, may take of host memory and need not have taken yet.

    Two supervisors that look at the same time would both find room for one. What stands still has its memory already.
    """
    others = [w for w in state.workloads.values() if w.id != workload.id and w.perhaps_locked and w.frozen is None]
    return sum(sum(other.memory_used.values()) for other in others)


def _may_stand_elsewhere(state: NodeState, cause: WorkloadId) -> bool:
    """Whether who is to come leaves its own place first, and may stand still there: nobody makes room for it then."""
    comes = state.workloads.get(cause)
    if comes is None or not comes.present:
        return False
    return comes.stands_on is not None or (state.plan[cause].deadline_at is not None and may_freeze(state, comes))


def can_thaw(state: NodeState, workload: Workload, frozen: Frozen, entry: PlanEntry) -> bool:
    """Whether it is to go on now: its place is its own again, and free in fact.

    One that is to end goes on wherever there is room: nothing of it may be killed while the driver holds it.
    """
    if state.at < _tries_again_at(state, frozen):
        return False
    meant = entry.target == frozen.gpus or workload.release_reason is not None
    return meant and all(uuid in state.gpus and has_room(state, workload, state.gpus[uuid]) for uuid in frozen.gpus)


def _tries_again_at(state: NodeState, frozen: Frozen) -> float:
    return state.at if frozen.failed_at is None else frozen.failed_at + state.policy.cool_down_s


def wakes_at(state: NodeState, entries: Mapping[WorkloadId, PlanEntry]) -> list[float]:
    """When time alone makes somebody freeze, or try again to go on."""
    times = []
    for workload in state.workloads.values():
        deadline_at = entries[workload.id].deadline_at
        if deadline_at is not None and may_freeze(state, workload):
            times.append(freeze_at(state, workload, deadline_at))
        if workload.frozen is not None:
            times.append(_tries_again_at(state, workload.frozen))
    return times


def why_it_stands(state: NodeState, frozen: Frozen, because: Why) -> Why:
    """Where its cell stands still, for whom as long as that one is here, and what it waits for."""
    who = tuple(mention for mention in frozen.why.who if mention.id in state.workloads)
    return Why(Reason.STANDS_STILL, gpus=frozen.gpus, who=who, because=(because,))
