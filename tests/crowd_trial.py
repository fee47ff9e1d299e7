"""A crowd lived through by the real core in virtual time, and at each decision the exact solver's answer beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from crowds import GPU_GIB, crowd
from exact_plan import Item, admitted, fewest_bytes, largest_smallest_share
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StopProcess, SuspendProcess
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.paper import admission_order
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from crowds import Crowd, Demand
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.workload import Workload

EVERY_GAIN: Final = Policy(
    min_gain=0.001,
    cool_down_s=0.0,
    max_moves_per_hour=10**6,
    max_moved_for_one=10**6,
    max_workloads_per_gpu=None,
    starvation_s=1e9,
)
"""The solver knows no price of a move for burst, no cool-down and no line, and moves as many as it takes for one."""
CALM: Final = replace(EVERY_GAIN, min_gain=2.0)
"""Nobody moves for burst alone: whoever moves has to."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The planner and the solver on one crowd.

    Attributes:
        decisions: how often a workload was admitted or not.
        disagreements: what the solver would have decided otherwise, as sentences.
        share: the smallest share of any burstable workload, once everybody has settled.
        best_share: the largest that there is.
        moved: GiB taken off their Gpus so that the last one runs; `None`: it was not admitted.
        fewest_moved: the fewest GiB that do.
        moves: how often somebody was suspended until everybody had settled.
    """

    number: int
    gpus: int
    workloads: int
    decisions: int
    disagreements: tuple[str, ...]
    share: float
    best_share: float
    moved: int | None
    fewest_moved: int | None
    moves: int

    @property
    def share_ratio(self) -> float:
        """The planner's share in parts of the best."""
        return self.share / self.best_share if self.best_share else 1.0


class _Trial:
    def __init__(self, chosen: Crowd, policy: Policy) -> None:
        self.node = SimulatedNode.of(chosen.gpus, GPU_GIB * GIB, policy)
        self.gpus = chosen.gpus
        self.demands: dict[WorkloadId, Demand] = {}
        self.decisions = 0
        self.disagreements: list[str] = []

    def item(self, workload: Workload, *, for_burst: bool = False) -> Item:
        gpus = sorted(self.node.state.gpus)
        spec = workload.spec
        pinned = spec.kind is Kind.COMMAND or (for_burst and not spec.burstable)
        held = max(workload.memory_used.values(), default=0)
        at = gpus.index(workload.current[0]) if workload.current else None
        return Item(
            workload.id,
            spec.request_bytes // GIB,
            spec.limit_bytes // GIB,
            round(held / GIB),
            at,
            workload.present and pinned,
        )

    def items(self, *, for_burst: bool = False) -> list[Item]:
        return [self.item(w, for_burst=for_burst) for w in self.node.state.workloads.values() if w.home]

    def submit(self, demand: Demand) -> WorkloadId:
        request, limit = demand.request * GIB, demand.limit * GIB
        workload = self.node.submit(
            kind=demand.kind, request_bytes=request, limit_bytes=limit, priority=demand.priority
        )
        self.demands[workload] = demand
        return workload

    def compare(self, had: list[Item], waiting: list[Item]) -> None:
        """Who of `waiting` has got a home now, and who could have."""
        could = admitted(had, waiting, self.gpus, GPU_GIB)
        homes = {w.id for w in self.node.state.workloads.values() if w.home}
        for item in waiting:
            self.decisions += 1
            if (item.name in could) != (item.name in homes):
                verb = "waits" if item.name in could else "is admitted"
                self.disagreements.append(f"{item.name} ({item.request} GiB) {verb}")

    def comes(self, demand: Demand) -> None:
        had = self.items()
        workload = self.submit(demand)
        self.compare(had, [Item(workload, demand.request, demand.limit)])
        self.node.settle()

    def goes(self, workload: WorkloadId) -> None:
        """Who waits is next, by priority and arrival, once its record has ended."""
        self.node.release(workload)
        waiting = self.waiting()
        had = [i for i in self.items() if i.name != workload]
        while workload in self.node.state.workloads:
            waiting, had = self.waiting(), [i for i in self.items() if i.name != workload]
            self.node.complete(self.node.pending[0])
        self.compare(had, waiting)
        self.node.settle()

    def waiting(self) -> list[Item]:
        """Who has no home, in the order in which it is their turn."""
        homeless = [w for w in self.node.state.workloads.values() if not w.home and w.release_reason is None]
        return [self.item(w) for w in sorted(homeless, key=admission_order)]

    def hold(self, *, burst: bool) -> None:
        """Everybody allocates what they want, as far as their request or (`burst`) their allowance goes."""
        for key, workload in list(self.node.state.workloads.items()):
            if workload.phase is Phase.RUNNING:
                demand, plan = self.demands[key], self.node.state.plan[key]
                most = plan.allowance_bytes // GIB if burst else demand.request
                self.node.hold(key, max(1, min(demand.held, most)) * GIB)
        self.node.settle()


def smallest_share(items: list[Item], gpus: int, capacity: int) -> float:
    """The smallest share that a burstable one can reach where everybody is."""
    shares = [1.0]
    for gpu in range(gpus):
        there = [i for i in items if i.at == gpu]
        burst = sum(i.burst for i in there)
        if burst:
            shares.append(min(1.0, (capacity - sum(i.request for i in there)) / burst))
    return min(shares)


def live_through(number: int, policy: Policy = EVERY_GAIN) -> Outcome:
    """The crowd of that number; an unsafe step raises `InvariantError`."""
    chosen = crowd(number)
    trial = _Trial(chosen, policy)
    for demand in chosen.demands:
        trial.comes(demand)
    for workload in [w for w, d in trial.demands.items() if d.leaves]:
        trial.goes(workload)
    node = trial.node
    trial.hold(burst=False)
    node.advance(1)
    items = trial.items(for_burst=True)
    homeless = [i.name for i in items if i.at is None]
    if homeless:
        raise AssertionError(f"admitted, within their requests, and not on a Gpu: {homeless}")
    share = smallest_share(items, chosen.gpus, GPU_GIB)
    best = largest_smallest_share(items, chosen.gpus, GPU_GIB, share)
    moves = sum(isinstance(c, SuspendProcess) for _, given in node.history for c in given)
    node.tell(ev.PolicyChanged(node.now, CALM))
    trial.hold(burst=True)
    moved, fewest = _last_one(trial, chosen.last)
    return Outcome(
        number,
        chosen.gpus,
        len(chosen.demands) + 1,
        trial.decisions,
        tuple(trial.disagreements),
        share,
        best,
        moved,
        fewest,
        moves,
    )


def _last_one(trial: _Trial, demand: Demand) -> tuple[int | None, int | None]:
    """GiB that leave their Gpus for it, by the planner and by the solver."""
    node = trial.node
    had = trial.items()
    held = {i.name: i.held for i in had}
    begins = len(node.history)
    newcomer = trial.submit(demand)
    trial.compare(had, [Item(newcomer, demand.request, demand.limit)])
    fewest = fewest_bytes(had, Item(newcomer, demand.request, demand.limit), trial.gpus, GPU_GIB)
    if not node.of_workload(newcomer).home:
        return None, fewest
    node.settle()
    if node.of_workload(newcomer).phase is not Phase.RUNNING:
        raise AssertionError(f"{newcomer} of crowd is admitted and does not run")
    gone = [
        c.workload for _, given in node.history[begins:] for c in given if isinstance(c, SuspendProcess | StopProcess)
    ]
    return sum(held[w] for w in gone), fewest
