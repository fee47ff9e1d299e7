"""What a gang as a whole means for the plan: all of it has Gpus, or nobody of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.planning.making_room.rooms import owed_bytes, room_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.core.model.gangs import Gang, GangKey
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.places.draft import Draft


def resting(gangs: Mapping[GangKey, Gang], homes: Mapping[WorkloadId, tuple[GpuUuid, ...]]) -> dict[WorkloadId, Why]:
    """Members that are to be on no Gpu now, each with the reason: all of a gang, or none."""
    rests: dict[WorkloadId, Why] = {}
    for gang in gangs.values():
        may_run = gang.may_start or gang.runs
        if not (may_run and all(w.id in homes for w in gang.members)):
            why = Why(Reason.GANG_WITHOUT_ROOM, names=(gang.name,)) if may_run else gang.why_not()
            rests |= dict.fromkeys((w.id for w in gang.members), why)
    return rests


def leave_together(draft: Draft, gangs: Mapping[GangKey, Gang]) -> None:
    """Where one of a gang gets no place or loses it, the others have none either, for its cause and by its deadline."""
    for gang in gangs.values():
        without = [w for w in gang.members if w.id not in draft.rooms.target]
        if not without:
            continue
        claims = {w.id: draft.claimed_since(w) for w in without if w.present}
        without.sort(key=lambda w: (claims.get(w.id) is None, claims.get(w.id) or 0.0))
        first, causes = without[0], (draft.cause.get(w.id) or draft.claimant(w) for w in without)
        since, cause = claims.get(first.id), next((each for each in causes if each is not None), None)
        why = gang.why_not_without(first)
        for workload in gang.members:
            if workload not in without:
                draft.rooms.remove(workload)
                draft.waits[workload.id] = why
            if workload.present and cause is not None:
                draft.cause.setdefault(workload.id, cause)
            if workload.present and since is not None:
                draft.since[workload.id] = since


def have_room(
    state: NodeState, gang: Sequence[Workload], target_of: Callable[[WorkloadId], tuple[GpuUuid, ...]]
) -> bool:
    """Whether the first of `gang` has room in fact, and all of it that has not started, together."""
    members = [w for w in gang if not w.present]
    if any(w.takes_part and not target_of(w.id) for w in members):
        return False
    needed: dict[GpuUuid, int] = {}
    for member in members:
        for uuid in target_of(member.id):
            needed[uuid] = needed.get(uuid, 0) + member.return_bytes

    def has(uuid: GpuUuid, size_bytes: int) -> bool:
        owed = owed_bytes(state, uuid, target_of, members)
        return uuid in state.usable and room_bytes(state, gang[0], state.gpus[uuid]) >= size_bytes + owed

    return all(has(uuid, size_bytes) for uuid, size_bytes in needed.items())
