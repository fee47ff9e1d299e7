"""Whether a pod's containers may start: which Gpus it was given, and whether they are vacated. Pure.

Asked by `nls wait-for-gpus`, which runs as the pod's first init container (docs/decisions/0021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.kubernetes_driver.pods import PodRecord

NOT_COUNTED: Final = "Which GPU this pod was given is not known on its node yet."


def waits_for(state: NodeState, pod: PodRecord, *, kubelet_heard: bool, somewhere: bool = False) -> str | None:
    """Why the containers of `pod` are to wait, as a sentence that names nobody; `None`: they may start.

    `kubelet_heard`: the kubelet has told its allocations since this was asked first. It gives devices before the first
    init container runs; what it told before that may be of an earlier pod of the same name. `somewhere`: it is not
    known which Gpu a device is that it was given.
    """
    demand = pod.demand
    owner = next((owner for owner in state.claims.owners if owner.id == pod.uid), None)
    if pod.managed or (owner is None and (demand is None or pod.given_none)):
        return None  # it gets no GPU, or shares one with its kind, whom the scheduler looks after
    unheard = demand is not None and demand.whole and not kubelet_heard
    if somewhere or unheard or owner is None or (demand is not None and len(owner.gpus) < demand.devices):
        return NOT_COUNTED
    # Also those that are kept free for what its init containers alone have, of which the kubelet never tells.
    gpus = (gpu for gpu in state.gpus.values() if any(part.id == pod.uid for part in gpu.owners))
    held = sorted(
        (gpu for gpu in gpus if is_lent(state, gpu.uuid) or _is_crowded(state, gpu)), key=lambda gpu: gpu.index
    )
    if not held:
        return None
    labels = " and ".join(gpu.label for gpu in held)
    return f"{labels} {'is' if len(held) == 1 else 'are'} still being vacated."


def is_lent(state: NodeState, uuid: GpuUuid) -> bool:
    """Whether somebody who is not at home there is on `uuid`, or has left and its memory is still to be seen free."""
    gpu = state.gpus.get(uuid)
    if gpu is None:
        return False
    return bool(gpu.releasing) or any(uuid not in workload.home for workload in state.on(uuid))


def _is_crowded(state: NodeState, gpu: Gpu) -> bool:
    """Whether those at home there still use what is an owner's from now on."""
    used = sum(workload.memory_used.get(gpu.uuid, 0) for workload in state.workloads.values())
    return used > max(0, gpu.memory_total_bytes - sum(owner.bytes for owner in gpu.owners))
