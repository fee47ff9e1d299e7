"""What the daemon knows of the node and wants there, as frozen values. Pure: no clock, no IO.

Times are seconds of the clock of decisions, carried in by events. Memory is in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from nls_scheduler.core.model.gangs import gangs_of
from nls_scheduler.core.model.gpu import Claims
from nls_scheduler.core.model.ids import MOST_TOLD, CommandId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.reasons import Mention
from nls_scheduler.core.model.values import computed_from, replace
from nls_scheduler.core.model.workload import Order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.core.model.gangs import Gang, GangKey
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.pools import Pool
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.workload import Workload


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """What the plan wants for one workload, and why. Not yet done.

    Attributes:
        home: where its request is to be counted; empty: not admitted yet.
        target: where its GPU process is to be; empty: nowhere for now.
        reason: for its user.
        cause: the workload for which it must move or wait.
        deadline_at: it must be off its current Gpu by then even if a cell runs; `None`: it may finish its cell.
        yields: it leaves at the end of the running cell: the next cell waits for that.
        allowance_bytes: request plus its share of the room where it is now, or else on its target (0 without either).
        position: place in the wait queue, from 1; `None` when it does not wait.
        trim_since: since when memory is short where it is: it gives caches back first, once for each such time.
        roomier: where it may use what it was refused, and is to move between its cells.
        bound: the Gpu to which it is on its way as one of several that were chosen together.
    """

    home: tuple[GpuUuid, ...]
    target: tuple[GpuUuid, ...]
    reason: Why
    cause: WorkloadId | None = None
    deadline_at: float | None = None
    yields: bool = False
    allowance_bytes: int = 0
    position: int | None = None
    trim_since: float | None = None
    roomier: GpuUuid | None = None
    bound: GpuUuid | None = None

    @property
    def has_to_act(self) -> bool:
        """Whether it is to leave, to give something back, or to go elsewhere."""
        leaves = self.yields or self.deadline_at is not None or self.bound is not None
        return leaves or self.trim_since is not None or self.roomier is not None


@dataclass(frozen=True)
class NodeState:
    """Everything `step` knows about the node.

    Attributes:
        plan: what the last step wants for each workload.
        claims: what a cluster's scheduler has given away here.
        unreported: after a restart, whose supervisors have not said yet how they are.
        known_until: the first order that a daemon before this one may have given and the journal does not know.
        forgetful: the journal was lost: workloads that nobody knows of may be brought back.
        quiet_until: until then nothing is ordered while somebody is unreported or may be brought back.
        settled: the plan was made from just these facts, and changed none of them: only an event or the timer can.
        at: time of the last event.
        timer_at: when the next TimerFired was asked for.
        remembered: what the planner has found and finds again while it follows from the same facts; itself no fact.
        weighed: where the plan follows from who computes, since when one is idle, or what a move costs; itself no fact.
        next_command: id of the next command.
    """

    policy: Policy = field(default_factory=Policy)
    gpus: Mapping[GpuUuid, Gpu] = field(default_factory=dict)
    workloads: Mapping[WorkloadId, Workload] = field(default_factory=dict)
    plan: Mapping[WorkloadId, PlanEntry] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    unreported: frozenset[WorkloadId] = frozenset()
    known_until: CommandId = field(default=CommandId(1))
    forgetful: bool = False
    quiet_until: float = 0.0
    settled: bool = False
    at: float = 0.0
    timer_at: float | None = None
    next_command: CommandId = field(default=CommandId(1))
    remembered: object = field(default=None, compare=False, repr=False)
    weighed: frozenset[GpuUuid] = field(default=frozenset(), compare=False, repr=False)

    @property
    def quiet(self) -> bool:
        """Whether a restart is so fresh that orders could cross what supervisors are about to report."""
        return self.settling or (bool(self.unreported) and self.at < self.quiet_until)

    @property
    def orders_from(self) -> float:
        """From when on orders are given: now, or when it is quiet no longer at the latest."""
        return self.quiet_until if self.quiet else self.at

    def told_since(self, workload: Workload) -> float:
        """Since when it is told to leave, or from when on it would be; by an interrupt, once there was one."""
        told_since = self.orders_from if workload.told_since is None else workload.told_since
        return told_since if workload.interrupt is None else max(told_since, workload.interrupt.issued_at)

    @property
    def settling(self) -> bool:
        """Whether who runs may still be brought back: nobody new gets a home before."""
        return self.forgetful and self.at < self.quiet_until

    @computed_from("policy", "gpus")
    def pools(self) -> Mapping[GpuUuid, Pool]:
        """The pool of each Gpu."""
        return {uuid: self.policy.pool_of(gpu) for uuid, gpu in self.gpus.items()}

    @computed_from("workloads")
    def gangs(self) -> Mapping[GangKey, Gang]:
        """All gangs among the workloads."""
        return gangs_of(self.workloads.values())

    @computed_from("workloads")
    def by_precedence(self) -> Sequence[Workload]:
        """All workloads, who is admitted before others first."""
        return sorted(self.workloads.values(), key=attrgetter("precedence"))

    def mention(self, key: WorkloadId | None) -> Mention | None:
        """A workload, or a pod of the cluster's, as a reason names it; one that has ended keeps its id as name."""
        if key is None:
            return None
        if (known := self.workloads.get(key)) is not None:
            return known.mention
        owners = (owner.mention for owner in self.claims.owners if owner.id == key)
        return next(owners, Mention(key, key, "workload"))

    def on(self, gpu: GpuUuid) -> Sequence[Workload]:
        """The workloads that are on `gpu`, or about to be."""
        return self._by_gpu.get(gpu, ())

    @computed_from("workloads")
    def _by_gpu(self) -> Mapping[GpuUuid, Sequence[Workload]]:
        there: dict[GpuUuid, list[Workload]] = {}
        for workload in self.workloads.values():
            for uuid in workload.current:
                there.setdefault(uuid, []).append(workload)
        return there

    def taken_bytes(self, uuid: GpuUuid) -> int:
        """What of a Gpu is not free in fact: what is on its way back, or out, still counts as taken."""
        known = self._taken_bytes.get(uuid)
        if known is None:
            gpu = self.gpus[uuid]
            taken = gpu.foreign_bytes + sum([releasing.bytes for releasing in gpu.releasing])
            known = taken + sum([workload.takes_bytes[uuid] for workload in self.on(uuid)])
            self._taken_bytes[uuid] = known
        return known

    @computed_from("gpus", "workloads")
    def _taken_bytes(self) -> dict[GpuUuid, int]:
        """Of those Gpus that were asked for: most states are asked for few."""
        return {}

    @computed_from("gpus", "workloads", "policy", "at")
    def usable(self) -> Mapping[GpuUuid, Gpu]:
        """The Gpus on which anything new may be placed: healthy, their memory known, nothing stuck on them."""
        stuck = self.stuck
        return {u: g for u, g in self.gpus.items() if g.healthy and g.memory_used_bytes is not None and u not in stuck}

    @computed_from("gpus", "workloads", "policy", "at")
    def stuck(self) -> frozenset[GpuUuid]:
        """The Gpus that a process which should be gone still keeps when the time that the policy allows has passed."""
        kept: set[GpuUuid] = set()
        for workload in self.workloads.values():
            ending = workload.pending
            if ending is not None and ending.order is Order.END and self.at >= ending.deadline_at:
                kept.update(workload.current)
        for uuid, gpu in self.gpus.items():
            if gpu.releasing and any(self.at >= r.since + self.policy.stop_timeout_s for r in gpu.releasing):
                kept.add(uuid)
        return frozenset(kept)

    def having(self, *workloads: Workload) -> NodeState:
        """This state with these workloads as they are now, whatever was known of them."""
        return replace(self, workloads={**self.workloads, **{w.id: w for w in workloads}}) if workloads else self

    def after_command(self, received: CommandId) -> NodeState:
        """This state, whose next command has an id above what a supervisor says that it has received."""
        return replace(self, next_command=CommandId(max(self.next_command, min(received, MOST_TOLD) + 1)))

    def label(self, gpus: tuple[GpuUuid, ...]) -> str:
        """`GPU 0` or `GPU 0 and GPU 1` for people; a vanished Gpu keeps its UUID."""
        return " and ".join(self.gpus[g].label if g in self.gpus else g for g in gpus)
