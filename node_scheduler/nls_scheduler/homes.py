"""Where each request is counted.

On a plain server homes are ours to choose, and choosing again costs nothing by itself: only a workload that cannot
burst has to follow its home.

The rule: the sum of the requests at home on a Gpu stays within its capacity, whole Gpus are kept free on paper
(best fit), and an older or more important workload is admitted first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.model import Gpu, GpuUuid, NodeState, Workload, WorkloadId


@dataclass(slots=True)
class Homes:
    """The result: `homes` of the admitted; why the others wait; who was given another home, and for whom."""

    homes: dict[WorkloadId, tuple[GpuUuid, ...]] = field(default_factory=dict)
    waits: dict[WorkloadId, str] = field(default_factory=dict)
    moved_for: dict[WorkloadId, WorkloadId] = field(default_factory=dict)
    wake_at: list[float] = field(default_factory=list)


def admission_order(workload: Workload) -> tuple[int, float, str]:
    """Priority first, then arrival, then id."""
    return (-workload.spec.priority, workload.submitted_at, workload.id)


def assign_homes(state: NodeState, workloads: Iterable[Workload]) -> Homes:
    """Homes for `workloads` (those that are neither released nor failed)."""
    result = Homes()
    ordered = sorted(workloads, key=admission_order)
    free = {uuid: gpu.capacity_bytes for uuid, gpu in state.gpus.items() if gpu.healthy}
    homeless = _keep_homes(state, ordered, free, result)
    homeless.sort(key=admission_order)
    for position, workload in enumerate(homeless):
        if _admit(state, workload, free, result):
            continue
        result.waits[workload.id] = _why_it_waits(state, workload, result)
        starves_at = _waiting_since(workload) + state.policy.starvation_s
        if state.at >= starves_at:
            for later in homeless[position + 1 :]:
                result.waits[later.id] = f"room is reserved for {workload.spec.name}, which has waited longer"
            break
        if len(homeless) > position + 1:
            result.wake_at.append(starves_at)
    return result


def _waiting_since(workload: Workload) -> float:
    return workload.submitted_at if workload.waiting_since is None else workload.waiting_since


def _keep_homes(state: NodeState, ordered: list[Workload], free: dict[GpuUuid, int], result: Homes) -> list[Workload]:
    """Keep the homes that still hold; return the workloads without one. A process that cannot move keeps its own."""
    homeless = []
    for workload in sorted(ordered, key=lambda w: (w.spec.movable or not w.present, not w.home)):
        request = workload.spec.request_bytes
        bound = workload.present and not workload.spec.movable
        holds = bool(workload.home) and all(free.get(uuid, -1) >= request for uuid in workload.home)
        if not holds and not (bound and all(uuid in state.gpus for uuid in workload.home)):
            homeless.append(workload)
            continue
        result.homes[workload.id] = workload.home
        for uuid in workload.home:
            free[uuid] = free.get(uuid, 0) - request
    return homeless


def _admit(state: NodeState, workload: Workload, free: dict[GpuUuid, int], result: Homes) -> bool:
    home = _best_fit(state, workload, free)
    if home is None:
        return _repack(state, workload, free, result)
    _give(workload, home, free, result)
    return True


def _give(workload: Workload, home: tuple[GpuUuid, ...], free: dict[GpuUuid, int], result: Homes) -> None:
    result.homes[workload.id] = home
    for uuid in home:
        free[uuid] -= workload.spec.request_bytes


def _best_fit(state: NodeState, workload: Workload, free: Mapping[GpuUuid, int]) -> tuple[GpuUuid, ...] | None:
    """The fullest Gpus with room; among equals where it already is, then where the least would have to leave."""
    request = workload.spec.request_bytes
    fitting = [
        uuid for uuid, room in free.items() if room >= request and state.gpus[uuid].memory_used_bytes is not None
    ]
    if len(fitting) < workload.spec.gpu_count:
        return None
    present = _present_bytes(state, workload)
    fitting.sort(
        key=lambda uuid: (free[uuid], uuid not in workload.current, present.get(uuid, 0), state.gpus[uuid].index)
    )
    return tuple(sorted(fitting[: workload.spec.gpu_count], key=lambda uuid: state.gpus[uuid].index))


def _present_bytes(state: NodeState, newcomer: Workload) -> dict[GpuUuid, int]:
    present: dict[GpuUuid, int] = {}
    for workload in state.workloads.values():
        if workload.id != newcomer.id:
            for uuid in workload.current:
                present[uuid] = present.get(uuid, 0) + workload.size_bytes
    return present


def _repack(state: NodeState, newcomer: Workload, free: dict[GpuUuid, int], result: Homes) -> bool:
    """Admit `newcomer` by giving others another home: bursters first, who need not move for it."""
    needed = newcomer.spec.request_bytes * newcomer.spec.gpu_count
    if sum(room for room in free.values() if room > 0) < needed:
        return False
    admitted = [state.workloads[w] for w in result.homes]
    for candidates in (
        [w for w in admitted if w.spec.may_borrow],
        [w for w in admitted if w.spec.movable],
    ):
        trial_free = dict(free)
        for workload in candidates:
            for uuid in result.homes[workload.id]:
                trial_free[uuid] += workload.spec.request_bytes
        trial = Homes()
        if _pack_all(state, newcomer, candidates, result.homes, trial_free, trial):
            for workload in candidates:
                if trial.homes[workload.id] != result.homes[workload.id]:
                    result.moved_for[workload.id] = newcomer.id
            result.homes.update(trial.homes)
            free.update(trial_free)
            return True
    return False


def _pack_all(
    state: NodeState,
    newcomer: Workload,
    candidates: list[Workload],
    old: Mapping[WorkloadId, tuple[GpuUuid, ...]],
    free: dict[GpuUuid, int],
    trial: Homes,
) -> bool:
    """First the newcomer, then the candidates by decreasing size, each at its old home where that still has room."""
    home = _best_fit(state, newcomer, free)
    if home is None:
        return False
    _give(newcomer, home, free, trial)
    for workload in sorted(candidates, key=lambda w: (-w.spec.request_bytes, *admission_order(w))):
        own = old[workload.id]
        fits = all(free.get(uuid, -1) >= workload.spec.request_bytes for uuid in own)
        new_home = own if fits else _best_fit(state, workload, free)
        if new_home is None:
            return False
        _give(workload, new_home, free, trial)
    return True


def _why_it_waits(state: NodeState, workload: Workload, result: Homes) -> str:
    gpus = "one GPU" if workload.spec.gpu_count == 1 else f"each of {workload.spec.gpu_count} GPUs"
    need = f"{format_bytes(workload.spec.request_bytes)} on {gpus}"
    held = []
    for gpu in sorted(state.gpus.values(), key=lambda g: g.index):
        held.extend(_holders(state, gpu, result))
    return f"no room for {need}: " + ("; ".join(held) if held else "this node has no GPU in service")


def _holders(state: NodeState, gpu: Gpu, result: Homes) -> list[str]:
    if not gpu.healthy:
        return [f"{gpu.label} is out of service"]
    names = [state.workloads[w].spec.name for w, home in result.homes.items() if gpu.uuid in home]
    if gpu.unplaced_bytes:
        names.append(f"other processes ({format_bytes(gpu.unplaced_bytes)})")
    return [f"{gpu.label} is held by {' and '.join(names)}"] if names else []
