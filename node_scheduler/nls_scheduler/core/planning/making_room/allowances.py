"""How much of its Gpus each workload may use now: its request, and a max-min fair share of the room above requests.

The share is the part of (limit - request) that is granted, so that small and large limits are treated alike. All
shares grow together until a Gpu is full; who is on it stays there, the others go on. So nobody's share can grow
without somebody's shrinking who has no more already, and allowances always fit in each Gpu beside the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import WorkloadSpec


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
    growing: dict[GpuUuid, list[tuple[WorkloadId, int, tuple[GpuUuid, ...]]]] = {}
    wanted: dict[GpuUuid, int] = {}
    for workload_id, spec, gpus in placed:
        granted[workload_id] = spec.request_bytes
        if spec.burstable:
            one = (workload_id, spec.burst_bytes, gpus)
            for uuid in gpus:
                growing.setdefault(uuid, []).append(one)
                wanted[uuid] = wanted.get(uuid, 0) + spec.burst_bytes
    room = dict(left_bytes)
    grown: set[WorkloadId] = set()
    while wanted:
        share, full = min([(share_of(room[uuid], burst), uuid) for uuid, burst in wanted.items()])
        del wanted[full]
        for workload_id, burst, gpus in growing[full]:
            if workload_id in grown:
                continue  # another of its Gpus was full before
            # Rounded down: a byte too little is nobody's loss, one too many is somebody's.
            bytes_ = int(burst * share)
            granted[workload_id] += bytes_
            grown.add(workload_id)
            for uuid in gpus:
                if uuid in wanted:
                    room[uuid] -= bytes_
                    wanted[uuid] -= burst
    return granted
