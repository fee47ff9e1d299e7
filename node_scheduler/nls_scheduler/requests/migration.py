"""What somebody asks who wants a workload on another Gpu, or why that cannot be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.units.sizes import format_bytes
from nls_scheduler.views.veil import SEES_ALL
from nls_scheduler.wire.errors import Problem, malformed, unknown_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.views.veil import Viewer


def wanted(body: Mapping[str, Any], workload: Workload, state: NodeState) -> GpuUuid:
    """The Gpu that `body` names by UUID or index. Raises Problem when `workload` cannot be moved there at all."""
    name = body.get("gpu")
    if not isinstance(name, str) or body.keys() != {"gpu"}:
        raise malformed("The field 'gpu' is needed, and no other: the UUID or the index of a GPU, as a text.")
    gpu = next((gpu for gpu in state.gpus.values() if name in (gpu.uuid, str(gpu.index))), None)
    if gpu is None:
        raise unknown_gpu(name)
    why = _why_never(workload) or _why_not_there(workload, gpu.uuid, state)
    if why is not None:
        raise _refused(why)
    return gpu.uuid


def check(after: NodeState, workload: Workload, gpu: GpuUuid, viewer: Viewer = SEES_ALL) -> None:
    """`after` is the state with the wish in it. Raises Problem when the plan does not grant it.

    `viewer`: who asks, and reads why not.
    """
    if after.plan[workload.id].target == (gpu,):
        return
    label, now = after.gpus[gpu].label, after.gpus[gpu].capacity_bytes
    others = (w for w in after.workloads.values() if w.id != workload.id)
    there = [w for w in others if gpu in after.plan[w.id].target or gpu in w.home]
    promised = sum(w.spec.request_bytes for w in (*there, workload))
    beside = "everybody's guarantee" if promised > now else "all that is held there"
    names = sorted({viewer.calls(w.mention) for w in there})
    needs = format_bytes(workload.return_bytes)
    held = f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} it" if names else "it is kept free"
    raise _refused(f"{label} ({format_bytes(now)}) has no room for its {needs} beside {beside}: {held}.")


def _why_never(workload: Workload) -> str | None:
    spec = workload.spec
    if spec.gang is not None or spec.gpu_count > 1 or spec.elastic:
        return "A workload of several GPUs or of a gang is never moved."
    if not spec.movable:
        return "A command has no saved state to move with: only one of `nls run --on-evict requeue` can be moved."
    if workload.phase is not Phase.RUNNING:
        return f"It is {workload.phase.value}: only one that runs can be moved."
    return None


def _why_not_there(workload: Workload, gpu: GpuUuid, state: NodeState) -> str | None:
    label = state.gpus[gpu].label
    if workload.current == (gpu,):
        return f"It is on {label} already."
    if gpu not in state.usable:
        return f"{label} is out of service."
    pool = state.policy.pool_of(state.gpus[gpu])
    if not pool.enabled or pool.name not in workload.spec.pools:
        return f"{label} is in the pool {pool.name!r}, which is not open to it."
    if workload.spec.kind is Kind.NOTEBOOK and workload.pending is not None:
        return "It is being moved at this moment: ask again when that is done."
    return None


def _refused(why: str) -> Problem:
    return Problem(409, "Not possible", why)
