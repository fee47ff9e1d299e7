"""How much of its Gpus each workload may use now: its request, and a max-min fair share of the room above requests.

The share is the part of (limit - request) that is granted, so that small and large limits are treated alike. All
shares grow together until a Gpu is full; who is on it stays there, the others go on. So nobody's share can grow
without somebody's shrinking who has no more already, and allowances always fit in each Gpu beside the requests.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState


def share_of(room_bytes: int, burst_bytes: int) -> float:
    """The part of what all together could use above their requests that there is room for, 0.0 to 1.0."""
    if room_bytes <= 0:
        return 0.0 if burst_bytes else 1.0
    return 1.0 if room_bytes >= burst_bytes else room_bytes / burst_bytes


def allowances(
    placed: Iterable[tuple[WorkloadId, WorkloadSpec, tuple[GpuUuid, ...]]], left_bytes: Mapping[GpuUuid, int]
) -> dict[WorkloadId, int]:
    """Bytes on each of its Gpus for everybody who is placed; called by the planner.

    Args:
        placed: who is meant to be where. A GPU process that cannot shrink counts like any other.
        left_bytes: on each Gpu, beside the requests of all those and what nobody placed.
    """
    granted: dict[WorkloadId, int] = {}
    growing: dict[GpuUuid, dict[WorkloadId, tuple[int, tuple[GpuUuid, ...]]]] = defaultdict(dict)
    room = dict(left_bytes)
    wanted: dict[GpuUuid, int] = defaultdict(int)
    for workload_id, spec, gpus in placed:
        granted[workload_id] = spec.request_bytes
        burst = spec.burst_bytes
        for uuid in gpus if burst > 0 else ():
            growing[uuid][workload_id] = (burst, gpus)
            wanted[uuid] += burst
    next_full = sorted((share_of(room[uuid], wanted[uuid]), uuid) for uuid in growing)
    while next_full:
        share, full = heappop(next_full)
        if share != (now := share_of(room[full], wanted[full])):
            heappush(next_full, (now, full))  # who has stayed behind on another Gpu leaves more here
            continue
        for workload_id, (burst, gpus) in growing[full].items():
            # Rounded down: a byte too little is nobody's loss, one too many is somebody's.
            bytes_ = int(burst * share)
            granted[workload_id] += bytes_
            for uuid in gpus:
                if uuid != full:
                    room[uuid] -= bytes_
                    wanted[uuid] -= burst
                    del growing[uuid][workload_id]
    return granted


def while_some_leave(
    state: NodeState, targets: Mapping[WorkloadId, tuple[GpuUuid, ...]], planned: Mapping[WorkloadId, int]
) -> Mapping[WorkloadId, int]:
    """What everybody may use now, where somebody is still on a Gpu who is to leave it.

    Who is to leave has its share of what is left beside the requests of all who are there now. Who stays gets no more
    than that either until it has left: so all who are there can use what they may at the same time.

    Args:
        state: as it is.
        targets: who is meant to be where.
        planned: bytes by that.
    """
    leaving = [w for w in state.workloads.values() if w.current and w.current != targets.get(w.id)]
    shares: dict[GpuUuid, float] = {}
    for uuid in {uuid for workload in leaving for uuid in workload.current if uuid in state.gpus}:
        specs = [workload.spec for workload in state.on(uuid)]
        room_bytes = state.gpus[uuid].capacity_bytes - sum(spec.request_bytes for spec in specs)
        shares[uuid] = share_of(room_bytes, sum(spec.burst_bytes for spec in specs))
    now = dict(planned)
    for workload in {w.id: w for uuid in shares for w in state.on(uuid)}.values():
        share = min(shares.get(uuid, 1.0) for uuid in workload.current)
        now[workload.id] = workload.spec.request_bytes + int(workload.spec.burst_bytes * share)
        if targets.get(workload.id) == workload.current:
            now[workload.id] = min(now[workload.id], planned[workload.id])
    return now
