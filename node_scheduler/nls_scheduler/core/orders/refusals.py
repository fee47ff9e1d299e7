"""What is planned is checked again when it is carried out: an order that would break a promise is refused, not given.

By sums of its own over what is there now, and nothing of the planner's: a defect there must not start a process where
nobody can grow to their request any more, nor stop a cell for nothing. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.core.recording.above_limit import above_limit

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


def refusal(state: NodeState, workload: Workload, entry: PlanEntry, order: Order) -> str | None:
    """Why `order` is not to be given; `None`: it may be. `state` has the orders of this step that were given before."""
    if order is Order.START:
        return _of_start(state, workload)
    if order is Order.THAW:
        return _of_thaw(state, workload)
    if workload.phase is not Phase.RUNNING or not workload.executing:
        return None
    if order is Order.SUSPEND:
        return "a cell runs, and would be cut off"
    if order in (Order.INTERRUPT, Order.FREEZE):
        return _of_deadline(state, workload, entry)
    return _of_stop(state, workload, entry) if order is Order.STOP else None


def _of_start(state: NodeState, workload: Workload) -> str | None:
    """All of its gang that starts is looked at together, so that no part of it starts alone."""
    starting = [workload, *(w for w in gangs.fellows(state, workload) if _starts_with_it(state, w))]
    why = next((why for each in starting if (why := _of_places(state, each)) is not None), None)
    if why is not None:
        return why
    targets = {w.id: state.plan[w.id].target for w in starting}
    for uuid in {uuid for target in targets.values() for uuid in target}:
        gpu = state.gpus[uuid]
        there = state.on(uuid)
        coming = [w for w in starting if uuid in targets[w.id]]
        if sum(w.spec.request_bytes for w in (*there, *coming)) > gpu.memory_total_bytes:
            return f"the requests on {gpu.label} would be more than it has"
        taken = gpu.foreign_bytes + sum(releasing.bytes for releasing in gpu.releasing)
        taken += sum(max(w.size_bytes, w.used_bytes(uuid)) for w in there)
        if taken + sum(w.return_bytes for w in coming) > gpu.memory_total_bytes:
            return f"{gpu.label} has no room for it in fact"
    return None


def _of_thaw(state: NodeState, workload: Workload) -> str | None:
    """It goes on where it was, beside what is there: all that it had there comes back at once."""
    for uuid in () if workload.frozen is None else workload.frozen.gpus:
        gpu = state.gpus.get(uuid)
        if gpu is None or not gpu.healthy or gpu.memory_used_bytes is None:
            return "its GPU is out of service, or its memory is not known"
        there = state.on(uuid)
        taken = gpu.foreign_bytes + sum(releasing.bytes for releasing in gpu.releasing)
        taken += sum(max(w.size_bytes, w.used_bytes(uuid)) for w in there)
        if taken + workload.return_bytes > gpu.memory_total_bytes:
            return f"{gpu.label} has no room for it in fact"
    return None


def _starts_with_it(state: NodeState, fellow: Workload) -> bool:
    return not fellow.present and bool(state.plan[fellow.id].target)


def _of_places(state: NodeState, workload: Workload) -> str | None:
    entry, spec = state.plan[workload.id], workload.spec
    most = spec.gpu_count if spec.gpu_count_max is None else spec.gpu_count_max
    if not spec.gpu_count <= len(set(entry.target)) <= most:
        return f"it asks for {spec.gpu_count} to {most} GPUs, and would have {len(set(entry.target))}"
    if not entry.home:
        return "it is not admitted"
    return next((why for uuid in entry.target if (why := _of_gpu(state.gpus[uuid], workload)) is not None), None)


def _of_gpu(gpu: Gpu, workload: Workload) -> str | None:
    if not gpu.healthy or gpu.memory_used_bytes is None:
        return f"{gpu.label} is out of service, or its memory is not known"
    if gpu.uuid in workload.home:
        return None
    if not workload.spec.may_borrow:
        return f"{gpu.label} is not its home, and it may not borrow"
    return f"{gpu.label} is not lent" if gpu.has_foreigners or gpu.unplaced else None


def _of_stop(state: NodeState, workload: Workload, entry: PlanEntry) -> str | None:
    if workload.release_reason is not None or above_limit(workload):
        return None
    if workload.spec.kind is Kind.COMMAND:
        in_part = workload.spec.gang is not None and not gangs.runs(state, workload)
        if workload.spec.requeue or in_part:
            return None
    if entry.deadline_at is None or state.at < entry.deadline_at:
        return "it runs, and its deadline has not come"
    return _of_deadline(state, workload, entry)


def _of_deadline(state: NodeState, workload: Workload, entry: PlanEntry) -> str | None:
    """A deadline that nobody was told in time is none."""
    if entry.deadline_at is None:
        return "it runs, and nobody sets it a deadline"
    in_time = entry.deadline_at >= state.told_since(workload) + state.policy.ladder_s
    return None if in_time else "it runs, and was not told of its deadline in time"
