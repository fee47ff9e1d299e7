"""A notebook's allocation has failed within its limit: may it try again, and if not, who holds what?

The ladder for it is short, because its cell runs and waits: the caches of those who hold more than they are entitled
to; for memory within its own request also their yielding, which the pressure on the Gpu brings about; then the answer.
Where another Gpu has room for it, it moves there when its cell has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.allocations import MemoryAnswer
from nls_scheduler.core.model.pools import Placement
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.places import trims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.allocations import Wanted
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.places.draft import Draft


def trim_for_wanted(state: NodeState, allowances: Mapping[WorkloadId, int]) -> dict[WorkloadId, float]:
    """Whose caches are to be given back for allocations that have failed, and since when there is reason to.

    Those above what they may use now; the idle, to whom a cache above their request is of no use; and for memory within
    the asker's request everybody above theirs.
    """
    since: dict[WorkloadId, float] = {}
    for asker in state.workloads.values():
        wanted = asker.wanted
        if wanted is None or not _is_short(state, wanted, allowances.get(asker.id, 0)):
            continue
        owed = wanted.needed_bytes <= asker.spec.request_bytes
        neighbours = trims.wanted_from(state, {wanted.gpu: wanted.asked_at})
        for key in neighbours.keys() - {asker.id}:
            other = state.workloads[key]
            above = other.used_bytes(wanted.gpu) > allowances.get(key, 0)
            if owed or above or not other.executing:
                since[key] = min(wanted.asked_at, since.get(key, wanted.asked_at))
    return since


def _is_short(state: NodeState, wanted: Wanted, allowance_bytes: int) -> bool:
    """Whether a sample taken since it asked shows too little for what it may have."""
    gpu = state.gpus.get(wanted.gpu)
    if gpu is None or wanted.needed_bytes > allowance_bytes or not wanted.shown:
        return False
    return free_bytes(gpu) < wanted.bytes


def free_bytes(gpu: Gpu) -> int:
    """What nobody uses, as last sampled."""
    used = gpu.memory_total_bytes if gpu.memory_used_bytes is None else gpu.memory_used_bytes
    return max(0, gpu.memory_total_bytes - used)


def roomier(draft: Draft, workload: Workload) -> GpuUuid | None:
    """Another Gpu on which `workload` may use what it wanted, with nobody's smallest share lowered; `None` if none."""
    needed = workload.wished_bytes if workload.wanted is None else workload.wanted.needed_bytes
    gpus = draft.rooms.target.get(workload.id, ())
    if not needed or not workload.spec.may_borrow or gpus != workload.current or len(gpus) != 1:
        return None
    if gpus == workload.given_home and draft.rooms.pools[gpus[0]].placement is Placement.BINPACK:
        return None  # nothing is lent there
    before = draft.rooms.value()
    draft.rooms.remove(workload)
    found = None
    for uuid in draft.rooms.gpus:
        if uuid in gpus or not draft.rooms.fits(workload, uuid):
            continue
        draft.rooms.add(workload, (uuid,))
        enough = draft.rooms.allowances()[workload.id] >= needed and draft.rooms.value()[0] >= before[0]
        draft.rooms.remove(workload)
        if enough:
            found = uuid
            break
    draft.rooms.add(workload, gpus)
    return found


def answer_wanted(state: NodeState) -> NodeState:
    """`state` with an answer for each allocation about which enough is known by now. Called after planning."""
    answered = []
    for workload in state.workloads.values():
        if workload.wanted is not None and (answer := _answer(state, workload, workload.wanted)) is not None:
            needed = workload.wanted.needed_bytes
            wishes = not answer.granted and needed <= workload.spec.limit_bytes
            wished = needed if wishes else workload.wished_bytes
            answered.append(replace(workload, wanted=None, answer=answer, wished_bytes=wished))
    return state.having(*answered)


def _answer(state: NodeState, workload: Workload, wanted: Wanted) -> MemoryAnswer | None:
    gpu, entry = state.gpus.get(wanted.gpu), state.plan[workload.id]
    if gpu is None or workload.phase is not Phase.RUNNING or wanted.gpu not in workload.current:
        return _refused(wanted, Why(Reason.NOT_THERE))
    needed, late = wanted.needed_bytes, state.at >= wanted.deadline_at
    if needed > workload.spec.limit_bytes:
        return _refused(wanted, _beyond_limit(state, workload, needed))
    allowance = entry.allowance_bytes
    if needed > allowance:
        return _refused(wanted, _beyond_allowance(state, workload, gpu, entry, (allowance, needed)))
    if not late and not wanted.shown:
        return None
    if wanted.shown and free_bytes(gpu) >= wanted.bytes:
        return MemoryAnswer(wanted.number, granted=True, reason=Why(Reason.FREE, bytes=(free_bytes(gpu),)))
    there = [w for w in state.on(wanted.gpu) if w.id != workload.id]
    # Who is above their request on a pressed Gpu leaves it: worth the wait for what is owed.
    owed = needed <= workload.spec.request_bytes and (gpu.pressed_since is not None or bool(gpu.releasing))
    if not late and (trims.is_any_open(state, there) or owed):
        return None
    holders, free = _holders(state, gpu), (free_bytes(gpu),)
    return _refused(wanted, Why(Reason.TOO_LITTLE_FREE, gpus=(gpu.uuid,), bytes=free, because=holders))


def _refused(wanted: Wanted, reason: Why) -> MemoryAnswer:
    return MemoryAnswer(wanted.number, granted=False, reason=reason)


def _beyond_limit(state: NodeState, workload: Workload, needed_bytes: int) -> Why:
    may_have = {uuid for uuid, pool in state.pools.items() if pool.name in workload.spec.pools}.union(workload.current)
    largest = max(gpu.memory_total_bytes for uuid, gpu in state.gpus.items() if uuid in may_have)
    if needed_bytes > largest:
        return Why(Reason.BEYOND_ANY_GPU, bytes=(needed_bytes, largest))
    return Why(Reason.BEYOND_LIMIT, bytes=(needed_bytes, workload.spec.limit_bytes))


def _beyond_allowance(state: NodeState, workload: Workload, gpu: Gpu, entry: PlanEntry, sizes: tuple[int, int]) -> Why:
    """`sizes`: what it may use now, and what it needs."""
    (allowance, needed), request, holders = sizes, workload.spec.request_bytes, _holders(state, gpu)
    if entry.roomier is not None:
        gpus = (gpu.uuid, entry.roomier)
        return Why(Reason.ROOMIER_ELSEWHERE, gpus=gpus, bytes=(allowance, request), because=holders)
    return Why(Reason.BEYOND_ALLOWANCE, gpus=(gpu.uuid,), bytes=(allowance, request, needed), because=holders)


def _holders(state: NodeState, gpu: Gpu) -> tuple[Why, ...]:
    """Who holds how much of `gpu`, the largest first."""
    there = sorted(state.on(gpu.uuid), key=lambda w: (-w.used_bytes(gpu.uuid), w.id))
    held = [Why(Reason.HOLDS, who=(w.mention,), bytes=(w.used_bytes(gpu.uuid), w.spec.request_bytes)) for w in there]
    if gpu.unplaced_bytes:
        held.append(Why(Reason.STRANGERS_HOLD, bytes=(gpu.unplaced_bytes,)))
    return tuple(held) or (Why(Reason.NOBODY_SEEN),)
