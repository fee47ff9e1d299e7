"""What each queue has while homes are given out: whose turn it is, who may be admitted, and who displaced. Pure.

Only queues that an administrator has configured have a ledger: without any, a priority decides who goes first and
nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from nls_scheduler.core.model.queues import TOLERANCE, Tree, fair_shares, wants_in_vain
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.queues import Queue
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

    Counted = Mapping[tuple[str, str], "Has"]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The queue whose rule keeps a workload out, and which rule."""

    queue: Queue
    why: Why

    @property
    def only_firm(self) -> bool:
        """Whether the rule is only about what is not preemptible."""
        return self.why.kind is Reason.QUEUE_QUOTA


class Has(NamedTuple):
    """What the workloads of a queue have of one pool as homes, in Gpus.

    Attributes:
        used: all together.
        spare: what of that elastic ones have above their fewest.
        firm, firm_spare: the same of those that are not preemptible.
    """

    used: float = 0.0
    spare: float = 0.0
    firm: float = 0.0
    firm_spare: float = 0.0


_NOTHING: Final = Has()


class Ledger:
    """One round of admissions.

    Attributes:
        tree: the queues.
        capacity: Gpus of each pool in service, counted in the largest of the pool.
    """

    def __init__(self, state: NodeState) -> None:
        """Nobody is admitted yet."""
        self.tree = Tree(state.policy.queues)
        self._pool_of, self._gangs = state.pools, state.gangs
        self._largest: dict[str, int] = {}
        for uuid, gpu in state.gpus.items():
            pool = self._pool_of[uuid].name
            self._largest[pool] = max(self._largest.get(pool, 1), gpu.memory_total_bytes)
        self.capacity: dict[str, float] = dict.fromkeys(self._largest, 0.0)
        for uuid, gpu in state.gpus.items():
            if gpu.healthy:
                own = self._pool_of[uuid]
                self.capacity[own.name] += own.home_capacity_bytes(gpu) / self._largest[own.name]
        self._pools_of: dict[tuple[GpuUuid, ...], Mapping[str, int]] = {}
        self._has: dict[tuple[str, str], Has] = {}
        self._asked: dict[str, dict[str, float]] = {}
        self._fair: dict[str, dict[str, float]] = {}

    # What is counted

    def pools_of(self, home: tuple[GpuUuid, ...]) -> Mapping[str, int]:
        """The pools in which `home` counts, with as many of its Gpus: one, but after a reload that has divided it.

        None where its Gpus are gone.
        """
        found = self._pools_of.get(home)
        if found is None:
            found = self._pools_of[home] = Counter(self._pool_of[uuid].name for uuid in home if uuid in self._pool_of)
        return found

    def demand(self, spec: WorkloadSpec, pool: str, count: int | None = None) -> float:
        """What `spec` asks for on `count` Gpus (its fewest), in Gpus of `pool`."""
        return spec.request_bytes * (count or spec.gpu_count) / self._largest.get(pool, 1)

    def leaf(self, workload: Workload) -> str:
        """The queue in which `workload` counts."""
        return self.tree.leaf(workload.spec.queue)

    def count(self, workload: Workload, home: tuple[GpuUuid, ...], sign: int = 1) -> None:
        """`workload` has `home` from now on, all of it, or (`sign` -1) no longer."""
        for pool, gpus in self.pools_of(home).items():
            amount = sign * self.demand(workload.spec, pool, gpus)
            spare = sign * self.demand(workload.spec, pool, 1) * workload.spec.spare(gpus)
            more = Has(amount, spare) if workload.spec.preemptible else Has(amount, spare, amount, spare)
            for queue in self.tree.chain(self.leaf(workload)):
                key = (pool, queue.name)
                self._has[key] = Has(*map(add, self._has.get(key, _NOTHING), more))

    def ask(self, workloads: Iterable[Workload], homes: Mapping[WorkloadId, tuple[GpuUuid, ...]]) -> None:
        """What everybody asks for: who has a home, in its pool; who waits, in each of the pools that it may use.

        A gang that is not whole asks for nothing yet.
        """
        self._asked = {pool: {} for pool in self._largest}
        not_yet = {w.id for gang in self._gangs.values() if not gang.asks for w in gang.members}
        for workload in workloads:
            own = self.pools_of(homes.get(workload.id, ()))
            if not own and workload.id in not_yet:
                continue
            for pool, gpus in (own or dict.fromkeys(workload.spec.pools, workload.fewest_gpus)).items():
                if pool in self._asked:
                    asked, leaf = self._asked[pool], self.leaf(workload)
                    asked[leaf] = asked.get(leaf, 0.0) + self.demand(workload.spec, pool, gpus)
        self._fair = {}

    def used(self, queue: str, pool: str) -> float:
        """How many Gpus of `pool` the workloads of `queue` have as homes."""
        return max(0.0, self._has.get((pool, queue), _NOTHING).used)

    def asked(self, queue: str, pool: str) -> float:
        """How many they ask for, those below included."""
        return sum(
            amount
            for leaf, amount in self._asked.get(pool, {}).items()
            if any(above.name == queue for above in self.tree.chain(leaf))
        )

    def fair(self, queue: str, pool: str) -> float:
        """The fair share of `queue` in `pool`."""
        return self._shares(pool)[queue]

    def _shares(self, pool: str) -> Mapping[str, float]:
        if pool not in self._fair:
            asked, capacity = self._asked.get(pool, {}), self.capacity.get(pool, 0.0)
            self._fair[pool] = fair_shares(self.tree, pool, asked, capacity)
        return self._fair[pool]

    def gets_no_more(self, spec: WorkloadSpec) -> bool:
        """Whether no fair share changes, however many more ask for the same: its queue wants more than it gets."""
        leaf, pools = self.tree.leaf(spec.queue), [pool for pool in spec.pools if pool in self._asked]
        return all(wants_in_vain(self.tree, leaf, pool, self._asked[pool], self._shares(pool)) for pool in pools)

    def checkpoint(self) -> Counted:
        """What `roll_back` goes back to: a copy, since sums of floats cannot be taken back by subtracting."""
        return dict(self._has)

    def roll_back(self, counted: Counted) -> None:
        """Count again what was counted then."""
        self._has = dict(counted)

    # What is allowed

    def obstacle(
        self,
        workload: Workload,
        pool: str,
        spec: WorkloadSpec | None = None,
        count: int | None = None,
        fellows: Iterable[Workload] = (),
    ) -> Obstacle | None:
        """Why `workload` may have no home in `pool` however much room there is; `None`: it may.

        Args:
            workload: who asks, and is not counted yet.
            pool: where.
            spec: what it asks for, where that is to change.
            count: on how many Gpus; if not given, on its fewest, for which elastic ones of its queue give back what
                they have above theirs (`above_limit`).
            fellows: who of its gang comes there with it.
        """
        spec = spec or workload.spec
        amount = self.demand(spec, pool, count or workload.fewest_gpus) + self.amount(fellows, pool)
        return self._beyond(spec, pool, amount, gives_back=count is None)

    def obstacles(
        self, workload: Workload, home: tuple[GpuUuid, ...], spec: WorkloadSpec | None = None
    ) -> list[Obstacle]:
        """Why it may not have just `home`, for each of the pools in which that counts; empty: it may."""
        found = (self.obstacle(workload, pool, spec, gpus) for pool, gpus in self.pools_of(home).items())
        return [obstacle for obstacle in found if obstacle is not None]

    def above_limit(self, workload: Workload, pool: str) -> Obstacle | None:
        """The first of its queues that has more of `pool` than it may, and by which rule."""
        return self._beyond(workload.spec, pool, 0.0, gives_back=False)

    def _beyond(self, spec: WorkloadSpec, pool: str, amount: float, *, gives_back: bool) -> Obstacle | None:
        """The first queue of `spec` that would have more than it may with that `amount` more, and by which rule.

        `gives_back`: elastic ones do, what they have above their fewest.
        """
        for queue in self.tree.chain(self.tree.leaf(spec.queue)):
            has, limit, quota = self._has.get((pool, queue.name), _NOTHING), queue.limit_in(pool), queue.quota_in(pool)
            used, firm = max(0.0, has.used), max(0.0, has.firm)
            spare, firm_spare = (has.spare, has.firm_spare) if gives_back else (0.0, 0.0)
            if limit is not None and max(0.0, used - spare) + amount > limit + TOLERANCE:
                return Obstacle(queue, Why(Reason.QUEUE_LIMIT, names=(queue.name, pool), numbers=(used, limit)))
            if spec.preemptible or quota is None:
                continue
            if max(0.0, firm - firm_spare) + amount > quota + TOLERANCE:
                figures = (firm, quota, spec.priority)
                return Obstacle(queue, Why(Reason.QUEUE_QUOTA, names=(queue.name, pool), numbers=figures))
        return None

    def beyond_limits(self, specs: Sequence[WorkloadSpec]) -> tuple[Why, ...]:
        """Why the limits of its queues can never hold the first of `specs`, for each of its pools; empty: they can.

        The others of its gang come with it. Of one alone that is not preemptible, quotas are limits.
        """
        first, gang = specs[0], () if specs[0].gang is None else (specs[0].gang,)
        leaf = self.tree.leaf(first.queue)
        found, places = [], 0.0
        for pool in first.pools:
            limits = [(limit, q.name) for q in self.tree.chain(leaf) if (limit := q.limit_in(pool)) is not None]
            if not (gang or first.preemptible):
                limits += [(quota, q.name) for q in self.tree.chain(leaf) if (quota := q.quota_in(pool)) is not None]
            if not limits:
                return ()
            demands, (limit, queue) = [self.demand(spec, pool) for spec in specs], min(limits)
            all_fit = len(first.pools) > 1 or sum(demands) <= limit + TOLERANCE
            places += (limit + TOLERANCE) // min(demands) if all_fit else 0.0
            if limit == self.tree.queues[queue].limit_in(pool):
                found.append(Why(Reason.QUEUE_TOO_SMALL, names=(queue, pool, *gang), numbers=(sum(demands), limit)))
            else:
                found.append(Why(Reason.QUEUE_QUOTA, names=(queue, pool), numbers=(0.0, limit, first.priority)))
        return tuple(found) if places < len(specs) else ()

    def above_share(self, workload: Workload, pool: str) -> Queue | None:
        """The first of its queues that has more of `pool` than its fair share: others may take from it."""
        return next((q for q in self.tree.chain(self.leaf(workload)) if self._is_above(q, pool)), None)

    def is_within_share(self, unit: Sequence[Workload]) -> bool:
        """Whether with all of `unit` in one of its pools their queue and all above it have no more than their share."""
        chain = self.tree.chain(self.leaf(unit[0]))
        amounts = ((pool, self.amount(unit, pool)) for pool in unit[0].spec.pools)
        return any(not any(self._is_above(q, pool, amount) for q in chain) for pool, amount in amounts)

    def _is_above(self, queue: Queue, pool: str, amount: float = 0.0) -> bool:
        """Whether `queue` has more of `pool` than its fair share, with that `amount` more."""
        return self.used(queue.name, pool) + amount > self.fair(queue.name, pool) + TOLERANCE

    def left_of_share_bytes(self, workload: Workload, pool: str) -> int:
        """How much on each of its Gpus `workload` could ask for within the fair shares of its queue and all above."""
        chain = self.tree.chain(self.leaf(workload))
        left = min(self.fair(queue.name, pool) - self.used(queue.name, pool) for queue in chain)
        return int(max(0.0, left) * self._largest.get(pool, 0) / workload.fewest_gpus)

    def amount(self, workloads: Iterable[Workload], pool: str) -> float:
        """What all of `workloads` that may be in `pool` take of it."""
        return sum(self.demand(w.spec, pool, w.fewest_gpus) for w in workloads if pool in w.spec.pools)

    def reclaimable(self, newcomer: Workload, pool: str, amount: float) -> set[str]:
        """The other leaf queues from which that of `newcomer` may take back, now or once others have given.

        `amount` is what it takes, less what it has from its own queue.
        """
        own = self.leaf(newcomer)
        if self._is_above(self.tree.queues[own], pool, amount):
            return set()
        leaves = (name for name in self.tree.queues if self.tree.is_leaf(name) and name != own)
        return {leaf for leaf in leaves if all(self._is_above(q, pool) for q in self.tree.split(own, leaf)[1])}

    def may_displace(self, newcomer: Workload, victim: Workload, pool: str, amount: float) -> bool:
        """Whether `victim`, at home in `pool`, may have to make room for `newcomer`: KAI's preempt and reclaim.

        `amount` is what `newcomer` and those that get homes with it take of `pool`.

        Within one queue the higher priority takes from the lower, but never stops a command that would not come back.
        Across queues, one that stays within its fair share takes from one that is above its own.
        """
        if not victim.spec.preemptible or victim.id == newcomer.id:
            return False
        own, other = self.leaf(newcomer), self.leaf(victim)
        if own == other:
            return victim.spec.priority < newcomer.spec.priority and (comes_back(victim) or not victim.present)
        to_own, to_other = self.tree.split(own, other)
        stays_within = not any(self._is_above(q, pool, amount) for q in to_own)
        return stays_within and all(self._is_above(q, pool) for q in to_other)

    # Whose turn it is

    def in_turn(self, waiting: Sequence[Workload]) -> Iterator[Workload]:
        """`waiting`, sorted by priority and arrival, one after another by the queues' turns as they change."""
        lines: dict[str, list[Workload]] = {}
        for workload in reversed(waiting):
            lines.setdefault(self.leaf(workload), []).append(workload)
        leaf: str | None = None
        demand: tuple[object, ...] = ()
        counted: Counted = self._has
        while lines:
            # Whoever asks for the same as the one before it, which got nothing, has the same turn.
            if leaf not in lines or lines[leaf][-1].spec.demand != demand or self._has != counted:
                leaf, counted = self._next(None, lines), self.checkpoint()
            if leaf is None:
                return
            head = lines[leaf].pop()
            demand = head.spec.demand
            yield head
            if not lines[leaf]:
                del lines[leaf]

    def _next(self, parent: str | None, lines: Mapping[str, list[Workload]]) -> str | None:
        """The leaf below `parent` whose turn it is."""
        best: tuple[tuple[bool, bool, int, float, int], str] | None = None
        for number, queue in enumerate(self.tree.children.get(parent, [])):
            leaf = queue.name if queue.name in lines else self._next(queue.name, lines)
            if leaf is not None:
                rank = self._rank(queue, lines[leaf][-1], number)
                best = min(best, (rank, leaf)) if best is not None else (rank, leaf)
        return None if best is None else best[1]

    def _rank(self, queue: Queue, head: Workload, number: int) -> tuple[bool, bool, int, float, int]:
        """Within its fair share, then within its quota, then by priority, then by how much of its share it has."""
        pool = head.spec.pools[0]
        fair, quota = self.fair(queue.name, pool), queue.quota_in(pool)
        with_head = self.used(queue.name, pool) + self.demand(head.spec, pool)
        return (
            self._is_above(queue, pool),
            quota is not None and with_head > quota + TOLERANCE,
            -queue.priority,
            with_head / fair if fair > TOLERANCE else float("inf"),
            number,
        )

    # What is told

    def standing(self, workload: Workload, pool: str) -> Why:
        """What its queue has, and may have."""
        leaf = self.leaf(workload)
        return Why(Reason.QUEUE_SHARE, names=(leaf, pool), numbers=(self.used(leaf, pool), self.fair(leaf, pool)))


def ledger_of(state: NodeState) -> Ledger:
    """The ledger of everybody who is admitted as the plan stands."""
    ledger = Ledger(state)
    alive = [w for w in state.workloads.values() if w.takes_part]
    for workload in alive:
        ledger.count(workload, workload.home)
    ledger.ask(alive, {workload.id: workload.home for workload in alive if workload.home})
    return ledger


def comes_back(workload: Workload) -> bool:
    """Whether its work goes on later when its GPU is taken away: a notebook, or a command that starts again."""
    return workload.spec.kind is Kind.NOTEBOOK or workload.spec.requeue
