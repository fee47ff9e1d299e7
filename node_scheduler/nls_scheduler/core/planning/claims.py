"""Which Gpus belong to somebody whom we do not look after: what a cluster's scheduler said, put on the Gpus. Pure.

Devices that are promised and not yet chosen are the hard part: nobody but the kubelet knows which Gpu it will be, and
it says so only when the container is about to start. As many Gpus as are promised are kept free meanwhile, borrowed
ones first, since a Gpu that nobody uses is free anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.gpu import GpuOwner
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.planning.making_room.victims import harm

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu, Owner
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState


def settle_claims(state: NodeState) -> NodeState:
    """`state` with the owners of each Gpu as its claims say."""
    if not state.claims.owners and not any(gpu.owners for gpu in state.gpus.values()):
        return state
    owners: dict[GpuUuid, list[GpuOwner]] = {uuid: [] for uuid in state.gpus}
    for owner in state.claims.owners:
        for uuid in owner.gpus:
            if uuid in state.gpus:
                owners[uuid].append(_part(owner, state.gpus[uuid]))
    for owner in state.claims.owners:
        for uuid in _expected(state, owner, owners):
            owners[uuid].append(GpuOwner(owner.id, owner.name, state.gpus[uuid].memory_total_bytes, expected=True))
    gpus = {uuid: replace(gpu, owners=tuple(owners[uuid])) for uuid, gpu in state.gpus.items()}
    return replace(state, gpus=gpus)


def _part(owner: Owner, gpu: Gpu) -> GpuOwner:
    size = owner.bytes_on(gpu.uuid)
    return GpuOwner(owner.id, owner.name, gpu.memory_total_bytes if size is None else size)


def _expected(state: NodeState, owner: Owner, taken: dict[GpuUuid, list[GpuOwner]]) -> list[GpuUuid]:
    """The Gpus kept free for the devices to come of `owner`: those of the last time as long as they are nobody's."""
    if owner.devices_to_come < 1:
        return []
    homes = {uuid for w in state.workloads.values() for uuid in w.given_home or ()}
    homes |= state.claims.allocated
    free = [gpu for uuid, gpu in state.gpus.items() if gpu.healthy and not taken[uuid] and uuid not in homes]
    return [gpu.uuid for gpu in sorted(free, key=lambda gpu: _cost(state, owner, gpu))[: owner.devices_to_come]]


def _cost(state: NodeState, owner: Owner, gpu: Gpu) -> tuple[bool, bool, object, int]:
    """The one kept already; then borrowed ones, the least harm first; then by index."""
    kept = any(o.id == owner.id and o.expected for o in gpu.owners)
    there = [harm(w, state.at) for w in state.on(gpu.uuid)]
    return (not kept, not there, max(there, default=()), gpu.index)
