"""The words of `docs/policy.md` and `docs/architecture.md`, worked out anew: slow, plain, from fields only.

None of this is used by what it checks, and nothing of the planner, the recorder or the model's own arithmetic is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.commands import WorkloadCommand
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Order, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.pools import Pool
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload

SAMPLES_TO_TRIM: Final = 2
SAMPLES_TO_STOP: Final = {Kind.COMMAND: 2, Kind.NOTEBOOK: 4}
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was taken: from where, to where, and what was ordered."""

    before: NodeState
    state: NodeState
    commands: tuple[Command, ...]

    @property
    def planned(self) -> list[tuple[Workload, PlanEntry]]:
        """Every workload with its entry in the plan."""
        plan = self.state.plan
        return [(w, plan[w.id]) for w in self.state.workloads.values() if w.id in plan]

    @property
    def ordered(self) -> list[tuple[WorkloadCommand, Workload, PlanEntry]]:
        """Every order to a workload that is there, with that workload as it is after the order."""
        state = self.state
        orders = [c for c in self.commands if isinstance(c, WorkloadCommand) and c.workload in state.workloads]
        return [(c, state.workloads[c.workload], state.plan[c.workload]) for c in orders if c.workload in state.plan]


def name_of(gpu: Gpu) -> str:
    """As people know it."""
    return f"GPU {gpu.index}"


def on(state: NodeState, uuid: GpuUuid) -> list[Workload]:
    """Who is on a Gpu, on the way there, or on the way from there."""
    return [w for w in state.workloads.values() if uuid in w.current]


def is_ordered(workload: Workload, *orders: Order) -> bool:
    """Whether one of these commands is on its way to it, or being carried out."""
    return workload.pending is not None and workload.pending.order in orders


def unheard_of(state: NodeState) -> Collection[WorkloadId]:
    """Of whom the daemon knows what its journal says alone, which may have lost its end; nobody later on."""
    return state.unreported if state.at < state.quiet_until else ()


def was_found_there(step: Step, workload: Workload) -> bool:
    """Whether its home may be where its process was found: of what was ordered there, a journal has lost every word.

    So it is with whom nobody knew, and with whose report tells of Gpus of which the journal knew nothing.
    """
    was = step.before.workloads.get(workload.id)
    if was is None:
        return bool(workload.current) and not is_ordered(workload, Order.START)
    is_new = workload.id in step.before.unreported and workload.current != was.current
    return is_new and set(workload.home) <= set(workload.current)


def most_gpus(spec: WorkloadSpec) -> int:
    """An elastic command's most, anybody else's number."""
    return spec.gpu_count if spec.gpu_count_max is None else spec.gpu_count_max


def may_borrow(spec: WorkloadSpec) -> bool:
    """A limit above its request, one Gpu, no gang; a notebook, or a command that may be started again."""
    comes_back = spec.kind is Kind.NOTEBOOK or spec.requeue
    return spec.limit_bytes > spec.request_bytes and most_gpus(spec) == 1 and spec.gang is None and comes_back


def stands_on(workload: Workload) -> tuple[GpuUuid, ...] | None:
    """Where alone a process can go on that stands still, or is being frozen or thawed; `None`: anywhere."""
    if workload.frozen is not None:
        return workload.frozen.gpus
    return workload.current if is_ordered(workload, Order.FREEZE, Order.THAW) else None


def brings_bytes(workload: Workload) -> int:
    """The room that it needs to come back: its request, or what a notebook has saved where that is more.

    What a running notebook has not saved yet counts as it was sampled.
    """
    needs = [workload.spec.request_bytes]
    if workload.spec.kind is Kind.NOTEBOOK:
        if workload.saved_bytes is not None:
            with_context = workload.saved_bytes + workload.context_bytes
            needs.append(min(with_context, max(workload.saved_bytes, workload.spec.limit_bytes)))
        if workload.frozen is not None:
            needs.append(workload.frozen.bytes)
        if workload.phase is Phase.RUNNING and workload.unsaved:
            needs.extend(workload.memory_used.get(uuid, 0) for uuid in workload.current)
    return max(needs)


def takes_bytes(workload: Workload, uuid: GpuUuid) -> int:
    """The room that it takes where it is: its request or what was sampled there; before a sample, what it brings.

    Who is on its way out takes what it took.
    """
    sampled = workload.memory_used.get(uuid, 0)
    if workload.phase in (Phase.RUNNING, Phase.SUSPENDING) and workload.measured:
        return max(workload.spec.request_bytes, sampled)
    return max(brings_bytes(workload), sampled)


def owned_bytes(gpu: Gpu) -> int:
    """What a cluster's scheduler has given away of it to those whom nobody here looks after."""
    return min(gpu.memory_total_bytes, sum(owner.bytes for owner in gpu.owners))


def for_plans_bytes(gpu: Gpu) -> int:
    """What is left beside owners and what two samples have shown of processes that nobody placed."""
    return max(0, gpu.memory_total_bytes - max(gpu.confirmed_bytes, owned_bytes(gpu)))


def to_be_told_s(state: NodeState) -> float:
    """The least that somebody who has to leave is told before: `interrupt_grace_s`, or half of the deadline."""
    return min(state.policy.interrupt_grace_s, state.policy.reclaim_deadline_s / 2)


def pool_of(state: NodeState, gpu: Gpu) -> Pool | None:
    """The first pool that names it by UUID (its own or its parent's), index or product name; `None`: `default`."""
    for pool in state.policy.pools:
        for word in pool.gpus:
            if word in (gpu.uuid, gpu.parent, str(gpu.index)):
                return pool
            if not word.isdecimal() and fnmatchcase(gpu.name, word):
                return pool
    return None


@dataclass(frozen=True, slots=True)
class Gang:
    """Commands of one owner, and of one tenant, under one gang's name.

    Attributes:
        members: those that are neither released nor failed.
        whole: every member is here or has ended well, and nobody that is released or failed still has its process.
    """

    name: str
    members: tuple[Workload, ...]
    whole: bool


def gangs(state: NodeState) -> Iterator[Gang]:
    """All gangs."""
    keys = {(w.spec.owner, w.spec.tenant, w.spec.gang) for w in state.workloads.values() if w.spec.gang is not None}
    for owner, tenant, name in sorted(keys, key=str):
        of_that_name = [w for w in state.workloads.values() if w.spec.gang == name]
        everybody = [w for w in of_that_name if w.spec.owner == owner and w.spec.tenant == tenant]
        members = [w for w in everybody if w.release_reason is None and w.phase is not Phase.FAILED]
        size = max(w.spec.gang_size for w in everybody)
        done = max((w.gang_done for w in members), default=0)
        leaving = any(w.current for w in everybody if w not in members)
        yield Gang(str(name), tuple(members), len(members) + done == size and not leaving)


def fellows(state: NodeState, workload: Workload) -> list[Workload]:
    """The others of its gang, whatever became of them."""
    spec = workload.spec
    if spec.gang is None:
        return []
    same = (spec.owner, spec.tenant, spec.gang)
    others = [w for w in state.workloads.values() if w.id != workload.id]
    return [w for w in others if (w.spec.owner, w.spec.tenant, w.spec.gang) == same]
