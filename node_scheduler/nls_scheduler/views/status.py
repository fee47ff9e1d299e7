"""What people and clients see of the node: the status, as plain JSON values. Pure but for the wall clock's offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nls_scheduler import __version__
from nls_scheduler.core.model.reasons import gpus_of
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.making_room.rooms import out_of_service
from nls_scheduler.units.clock import wall_time
from nls_scheduler.views.queues import queue_views
from nls_scheduler.views.sentences import Names, parts, sentence, told_of
from nls_scheduler.views.veil import SEES_ALL
from nls_scheduler.wire.protocol import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.core.model.gpu import Gpu, Owner
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.views.veil import Viewer

FIGURES: Final = frozenset({"memory_used_bytes", "saved_bytes", "waiting_s"})
"""Fields of a workload's entry that change all the time and are worth no message of their own."""
_SAID_BY_ITSELF: Final = frozenset({"executing", "cell_waits"})
"""Those that a supervisor has told the daemon: it needs no message about its own cells."""
_UNSETTLED: Final = FIGURES | _SAID_BY_ITSELF | {"since"}


def node_view(
    state: NodeState,
    now: float,
    viewer: Viewer = SEES_ALL,
    *,
    simulated: bool,
    message: str | None,
    entries: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The whole status. `message` is one sentence about the node itself, such as why it has no Gpu.

    `entries`: those of the workloads, where somebody has kept them.
    """
    out = out_of_service(state)
    owners = sorted(state.claims.owners, key=lambda owner: (owner.name, owner.id))
    if entries is None:
        names = Names.of(state, viewer)
        entries = [workload_view(state, workload, now, names) for workload in in_order(state)]
    return {
        "protocol": PROTOCOL_VERSION,
        "version": __version__,
        "simulated": simulated,
        "message": message,
        "gpus": [gpu_view(state, gpu, out) for gpu in sorted(state.gpus.values(), key=lambda gpu: gpu.index)],
        "workloads": list(entries),
        "queues": queue_views(state),
        "owners": [owner_view(owner, viewer) for owner in owners],
    }


def gpu_view(state: NodeState, gpu: Gpu, out: Mapping[GpuUuid, Why]) -> dict[str, Any]:
    """One Gpu; `None` is what the driver did not say. One of those `out` of service is not healthy."""
    why = out.get(gpu.uuid)
    told = None if why is None else parts(why, Names.of(state))
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "pool": state.policy.pool_of(gpu).name,
        "memory_total_bytes": gpu.memory_total_bytes,
        "memory_used_bytes": gpu.memory_used_bytes,
        "healthy": told is None,
        "unhealthy_reason": None if told is None else str(told),
        "unhealthy_parts": None if told is None else told.view(),
        "utilisation": gpu.utilisation,
        "unplaced_bytes": gpu.foreign_bytes,
        "parent": gpu.parent,
        "numa_node": gpu.numa_node,
        "freezes": gpu.uuid in state.pools and state.policy.freezes_in(state.pools[gpu.uuid]),
        "links": {uuid: link.value for uuid, link in sorted(gpu.links.items())},
    }


def owner_view(owner: Owner, viewer: Viewer) -> dict[str, Any]:
    """One of those whom we do not look after, without its name for who reads only its own."""
    return {
        "name": viewer.calls(owner.mention),
        "gpus": [{"uuid": uuid, "request_bytes": owner.bytes_on(uuid)} for uuid in owner.gpus],
        "devices_to_come": owner.devices_to_come,
    }


def workload_view(state: NodeState, workload: Workload, now: float, names: Names | None = None) -> dict[str, Any]:
    """One workload at `now` (of `awake_s`) with the names that its viewer knows; `None`: all of them.

    Of another user's, neither its name nor its gang's nor the reason is told.
    """
    spec, entry, since = workload.spec, state.plan.get(workload.id), _since(workload)
    names = Names.of(state) if names is None else names
    why = workload.last_reason if entry is None else entry.reason
    told = told_of(workload.mention, why, names)
    return {
        "id": workload.id,
        "name": names.viewer.calls(workload.mention),
        "kind": spec.kind.value,
        "owner": spec.owner,
        "own": names.viewer.owns(workload.mention),
        "phase": workload.phase.value,
        "request_bytes": spec.request_bytes,
        "limit_bytes": spec.limit_bytes,
        "gpu_count": spec.gpu_count,
        "gpu_count_max": spec.gpu_count_max,
        "gang": None if spec.gang is None else names.viewer.calls_gang(spec.gang, workload.mention),
        "gang_size": None if spec.gang is None else spec.gang_size,
        "priority": spec.priority,
        "requeue": spec.requeue,
        "queue": spec.queue,
        "pools": list(spec.pools),
        "gpus": [state.label((gpu,)) for gpu in workload.current],
        "home": list(workload.home),
        "current": list(workload.current),
        "borrowed": workload.borrowed,
        "pid": None if workload.process is None else workload.process.pid,
        "memory_used_bytes": sum(workload.memory_used.values()) if workload.present else 0,
        "saved_bytes": workload.saved_bytes,
        "memory_answer": _memory_answer(workload, names),
        "allowance_bytes": 0 if entry is None else entry.allowance_bytes,
        "executing": workload.executing,
        "cell_waits": workload.cell_since is not None and not workload.executing,
        "keep_until": wall_time(workload.keep_until) if workload.keep_until and workload.kept(now) else None,
        "frozen": _frozen(workload, names),
        "freezes": all(state.policy.freezes_in(state.pools[uuid]) for uuid in workload.current if uuid in state.pools),
        "yields": entry is not None and entry.yields,
        # Whoever has to leave for a guarantee cannot be kept by its user.
        "claimed": entry is not None and entry.deadline_at is not None,
        # The last plan may be of before it got its Gpu.
        "position": None if entry is None or workload.current else entry.position,
        "reason": str(told),
        "reason_parts": told.view(),
        "reason_kind": why.kind.value if names.viewer.knows(workload.mention) else None,
        "cause": None if entry is None else _cause_since(state, workload, entry, names.viewer),
        "since": None if since is None else wall_time(since),
        "waiting_s": waiting_s(workload, now),
    }


def _frozen(workload: Workload, names: Names) -> dict[str, Any] | None:
    """Since when its running cell stands still, and for whom, as far as its viewer may read that."""
    frozen = workload.frozen
    if frozen is None:
        return None
    known = names.viewer.knows(workload.mention)
    cause = frozen.why.who[0] if known and frozen.why.who else None
    return {
        "since": wall_time(frozen.since),
        "bytes": frozen.bytes,
        "for": None if cause is None else str(names.part(cause)),
    }


def waiting_s(workload: Workload, now: float) -> float | None:
    """How long it has waited; `None`: it does not."""
    return None if workload.waiting_since is None else round(max(0.0, now - workload.waiting_since), 3)


def _memory_answer(workload: Workload, names: Names) -> dict[str, Any] | None:
    answer = workload.answer
    if answer is None or not names.viewer.knows(workload.mention):
        return None
    return {"number": answer.number, "granted": answer.granted, "reason": sentence(answer.reason, names)}


def settled_part(view: Mapping[str, Any]) -> dict[str, Any]:
    """A workload's entry without its figures: two entries that differ here are worth a message at once.

    The time of day is derived from two clocks and differs by a millisecond between two calls: `since` is left out but
    for whether the cause is there, and until when its user keeps it counts to the minute.
    """
    settled = {name: value for name, value in view.items() if name not in _UNSETTLED}
    if settled.get("keep_until") is not None:
        settled["keep_until"] = settled["keep_until"][: len("2000-01-01T00:00")]
    if settled.get("frozen") is not None:
        settled["frozen"] = {name: value for name, value in settled["frozen"].items() if name != "since"}
    if settled.get("cause") is not None:
        settled["cause"] = {**settled["cause"], "since": settled["cause"]["since"] is not None}
    return settled


def figures(view: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a workload's entry that are worth a message once a second (a clock can count seconds itself)."""
    return {name: view[name] for name in FIGURES - {"waiting_s"}}


def cause_view(state: NodeState, workload: WorkloadId | None) -> dict[str, str] | None:
    """Who made something necessary as JSON, for who reads all names."""
    cause = state.mention(workload)
    return None if cause is None else {"id": cause.id, "name": cause.name}


def _cause_since(state: NodeState, whose: Workload, entry: PlanEntry, viewer: Viewer) -> dict[str, str | None] | None:
    """Who made it necessary, and since when that workload is on a Gpu that the reason is about; `None`: on none."""
    cause = state.mention(entry.cause)
    if cause is None or entry.cause is None:
        return None
    known = state.workloads.get(entry.cause)
    is_there = known is not None and not set(known.current).isdisjoint(gpus_of(entry.reason))
    since = known.resident_since if known is not None and is_there else None
    name = viewer.calls_cause(cause, whose.mention)
    return {"id": cause.id, "name": name, "since": None if since is None else wall_time(since)}


def _since(workload: Workload) -> float | None:
    """Since when it is where it is: on its Gpu, on its way, or without one."""
    if workload.phase is Phase.RUNNING:
        return workload.resident_since
    if workload.pending is not None:
        return workload.pending.issued_at
    if workload.waiting_since is not None:
        return workload.waiting_since
    return workload.idle_since if workload.idle_since is not None else workload.submitted_at


def in_order(state: NodeState) -> list[Workload]:
    """As they came."""
    return sorted(state.workloads.values(), key=lambda workload: (workload.submitted_at, workload.id))
