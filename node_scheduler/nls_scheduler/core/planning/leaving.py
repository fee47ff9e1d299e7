"""Why one has to leave a Gpu: for whom, and where that is felt elsewhere. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.gangs import fellows
from nls_scheduler.core.model.reasons import Reason, Why

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import GpuOwner
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.reasons import Mention
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.places.draft import Draft


def why_it_leaves(
    draft: Draft, workload: Workload, target: tuple[GpuUuid, ...], cause: WorkloadId | None
) -> Why | None:
    """Why it is to leave, and for whom (`cause`); `None`: it goes where it is better off."""
    if cause is not None:
        return why_needed(draft, workload, target, cause)
    owner = owner_there(draft, workload, target)
    if owner is not None:
        return Why(Reason.NEEDED, gpus=owner[:1], who=(owner[1].mention,))
    if workload.id in draft.waits:
        return draft.waits[workload.id]
    left = tuple(uuid for uuid in workload.current if uuid not in target)
    return next(iter(why_nobody_comes(draft, workload, left)), None)


def what_is_in_its_way(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...]) -> Why | None:
    """Why it cannot stay where it is: it, or who is at home there, has asked for more than there is, or is left."""
    left = [uuid for uuid in workload.current if uuid not in target] if target else []
    gpus, request_bytes = draft.state.gpus, workload.spec.request_bytes
    if small := tuple([uuid for uuid in left if uuid in gpus and gpus[uuid].memory_total_bytes < request_bytes]):
        return Why(Reason.WOULD_EXCEED, gpus=small)
    if workload.given_home is not None:
        return None
    for uuid in left:
        if there := [key for key, home in draft.homes.homes.items() if uuid in home and key != workload.id]:
            return Why(Reason.HELD, gpus=(uuid,), who=tuple(draft.state.workloads[key].mention for key in there))
    return None


def why_needed(
    draft: Draft, workload: Workload, target: tuple[GpuUuid, ...], cause: WorkloadId, because: tuple[Why, ...] = ()
) -> Why:
    """That `cause` needs what `workload` leaves; where it goes elsewhere, that, and why it is felt here."""
    leaves = tuple([uuid for uuid in workload.current if uuid not in target]) or workload.current
    cause = _who_of_its_gang(draft, cause, leaves)
    goes, who = draft.rooms.target.get(cause) or draft.homes.homes.get(cause, ()), mentions(draft, cause)
    there = (*goes, *draft.state.workloads[cause].current)
    needed = tuple([uuid for uuid in leaves if uuid in there])
    if needed or because or not goes:
        return Why(Reason.NEEDED, gpus=needed or goes or leaves, who=who, because=because)
    if (between := _who_comes_for(draft, cause, leaves)) is not None:
        because = (Why(Reason.NEEDED, gpus=goes, who=who),)
        return Why(Reason.NEEDED, gpus=leaves, who=mentions(draft, between), because=because)
    return Why(Reason.NEEDED, gpus=goes, who=who, because=_why_with_it(draft, workload, leaves))


def _who_of_its_gang(draft: Draft, cause: WorkloadId, gpus: tuple[GpuUuid, ...]) -> WorkloadId:
    """`cause`, or who of its gang comes to one of `gpus`: all of a gang get their homes together."""
    one, homes = draft.state.workloads[cause], draft.homes.homes
    gang = (cause, *(fellow.id for fellow in fellows(draft.state, one)))
    return next((key for key in gang if not set(gpus).isdisjoint(homes.get(key, ()))), cause)


def _who_comes_for(draft: Draft, cause: WorkloadId, gpus: tuple[GpuUuid, ...]) -> WorkloadId | None:
    """Who makes room for `cause` elsewhere, and comes to one of `gpus` for that."""
    moved_for, workloads = draft.homes.moved_for, draft.state.workloads
    for key, target in draft.rooms.target.items():
        if moved_for.get(key) == cause and not set(gpus).isdisjoint(set(target).difference(workloads[key].current)):
            return key
    return None


def _why_with_it(draft: Draft, workload: Workload, leaves: tuple[GpuUuid, ...]) -> tuple[Why, ...]:
    """Why `workload` leaves Gpus to which nobody comes: its gang has lost a place, or its queue may have no more."""
    if workload.id in draft.waits:
        return (draft.waits[workload.id],)
    ledger = draft.homes.ledger
    return () if ledger is None else tuple(obstacle.why for obstacle in ledger.obstacles(workload, leaves))


def owner_there(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...]) -> tuple[GpuUuid, GpuOwner] | None:
    """Which borrowed Gpu it leaves to which pod of the cluster's, whom nobody here looks after."""
    gpus, home = draft.state.gpus, draft.homes.homes.get(workload.id, ())
    for uuid in workload.current:
        if uuid not in target and uuid not in home and uuid in gpus and gpus[uuid].owners:
            return uuid, gpus[uuid].owners[0]
    return None


def why_nobody_comes(draft: Draft, workload: Workload, gpus: tuple[GpuUuid, ...]) -> tuple[Why, ...]:
    """Why it could not come to `gpus`, on which it is, as things are now; empty where it could."""
    state, found = draft.state, []
    for uuid in gpus:
        gpu, pool = state.gpus[uuid], state.pools[uuid]
        if not gpu.healthy:
            because = gpu.unhealthy_reason or Why(Reason.UNHEALTHY)
            found.append(Why(Reason.OUT_OF_SERVICE, gpus=(uuid,), because=(because,)))
        elif gpu.confirmed and not gpu.owners and uuid not in draft.homes.homes.get(workload.id, ()):
            found.append(Why(Reason.HELD, gpus=(uuid,), bytes=(gpu.unplaced_bytes,)))
        elif workload.given_home is None and pool.name not in workload.spec.pools:
            found.append(Why(Reason.POOL_CLOSED, gpus=(uuid,), names=(pool.name,)))
        elif workload.given_home is None and not pool.enabled:
            found.append(Why(Reason.POOL_OFF, names=(pool.name,)))
    return tuple(found)


def mentions(draft: Draft, workload: WorkloadId) -> tuple[Mention, ...]:
    """It, as the only one whom a reason names."""
    return (draft.state.workloads[workload].mention,)
