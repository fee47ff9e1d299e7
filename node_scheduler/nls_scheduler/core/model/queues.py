"""Queues: who may have how many Gpus of each pool, and the fair share of what is left over. Pure.

The words and rules are KAI Scheduler's: quota, limit, over-quota weight, priority, parent. Amounts are Gpus, fractions
allowed; `None` is unlimited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT: Final = "default"
"""The queue of whoever names none and is named by none. It is always there."""
EVERY_POOL: Final = "*"
"""In a queue's amounts: all pools that are not named."""
PRIORITIES: Final[Mapping[str, int]] = {"train": 50, "build": 100, "inference": 125}
FIRM_FROM: Final = 100
"""From this priority on a workload is not preemptible: only within its queue's quota, and never displaced."""
TOLERANCE: Final = 1e-6
"""Gpus: ten times a tenth is a whole one."""

Amounts = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue as the administrator wrote it.

    Attributes:
        name: as users write it.
        parent: the queue whose part it shares with its siblings; `None`: a queue at the top.
        priority: among siblings, the higher is served first from what is over quota.
        quota: guaranteed Gpus by pool; a pool that is not named: none.
        limit: most Gpus by pool; a pool that is not named: unlimited.
        over_quota_weight: its part of what nobody's quota needs, by pool; a pool that is not named: 1. With 0 it has no
            part: what it uses above its quota it may have only while nobody else wants it.
        max_priority: the highest priority that its users may give their workloads.
        uids: users who may use it; empty, with no `gids` either: everybody.
        gids: groups who may.
    """

    name: str = DEFAULT
    parent: str | None = None
    priority: int = 0
    quota: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    over_quota_weight: Amounts = field(default_factory=dict)
    max_priority: int | None = None
    uids: tuple[int, ...] = ()
    gids: tuple[int, ...] = ()

    def quota_in(self, pool: str) -> float | None:
        """Guaranteed Gpus of `pool`; `None`: as many as it asks for."""
        return _amount(self.quota, pool, 0.0)

    def limit_in(self, pool: str) -> float | None:
        """Most Gpus of `pool`; `None`: no limit."""
        return _amount(self.limit, pool, None)

    def weight_in(self, pool: str) -> float:
        """Its weight for what is over quota in `pool`."""
        return _amount(self.over_quota_weight, pool, 1.0) or 0.0

    def is_open_to(self, uid: int, gids: Iterable[int]) -> bool:
        """Whether that user may use it."""
        return not (self.uids or self.gids) or uid in self.uids or not set(self.gids).isdisjoint(gids)


def _amount(amounts: Amounts, pool: str, otherwise: float | None) -> float | None:
    return amounts[pool] if pool in amounts else amounts.get(EVERY_POOL, otherwise)


class Tree:
    """The queues and who is whose child. The queue `default` is added where it is not configured, without a quota."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        """`queues` has passed `queue_config`: every parent exists, and none is its own ancestor."""
        given = tuple(queues)
        if all(queue.name != DEFAULT for queue in given):
            given = (*given, Queue())
        self.queues: dict[str, Queue] = {queue.name: queue for queue in given}
        self.children: dict[str | None, list[Queue]] = {}
        for queue in given:
            self.children.setdefault(queue.parent, []).append(queue)
        self._leaves = self.queues.keys() - self.children.keys()
        self._chains = {queue.name: self._chain(queue) for queue in given}
        self._splits: dict[tuple[str, str], tuple[tuple[Queue, ...], tuple[Queue, ...]]] = {}

    def _chain(self, queue: Queue) -> tuple[Queue, ...]:
        chain = [queue]
        while chain[-1].parent is not None:
            chain.append(self.queues[chain[-1].parent])
        return tuple(chain)

    def is_leaf(self, name: str) -> bool:
        """Whether workloads may be in the queue `name`: it is there, and no other queue shares its part."""
        return name in self._leaves

    def leaf(self, name: str) -> str:
        """The queue in which a workload counts that named `name`; one that is gone or has children: `default`."""
        return name if name in self._leaves else DEFAULT

    def chain(self, leaf: str) -> tuple[Queue, ...]:
        """The queue `leaf`, its parent, and so on up to the top."""
        return self._chains[leaf]

    def split(self, one: str, other: str) -> tuple[tuple[Queue, ...], tuple[Queue, ...]]:
        """The chains of two leaves without the ancestors that they share: the last of each are siblings."""
        known = self._splits.get((one, other))
        if known is None:
            chain, against = self._chains[one], self._chains[other]
            shared = {queue.name for queue in chain} & {queue.name for queue in against}
            known = (
                tuple(queue for queue in chain if queue.name not in shared),
                tuple(queue for queue in against if queue.name not in shared),
            )
            self._splits[one, other] = known
        return known


def fair_shares(tree: Tree, pool: str, demand: Mapping[str, float], capacity: float) -> dict[str, float]:
    """Each queue's fair share of `pool`, in Gpus.

    Everybody first gets min(quota, demand). What is left goes to siblings of the highest priority, in proportion to
    their over-quota weights and never beyond demand or limit; what those leave, to the next priority. The same again
    within each queue. Quotas are kept also where they are more than there is: then those who are there first have them.

    Args:
        tree: the queues.
        pool: which pool.
        demand: by leaf queue, what its workloads ask for in all.
        capacity: how many Gpus there are to share.
    """
    wanted = {name: _wanted(tree, queue, pool, demand) for name, queue in tree.queues.items()}
    shares: dict[str, float] = {}
    open_levels: list[tuple[str | None, float]] = [(None, capacity)]
    while open_levels:
        parent, amount = open_levels.pop()
        siblings = tree.children.get(parent, [])
        shares |= _divide(siblings, pool, wanted, amount)
        open_levels += [(queue.name, shares[queue.name]) for queue in siblings]
    return shares


def wants_in_vain(tree: Tree, leaf: str, pool: str, demand: Mapping[str, float], shares: Mapping[str, float]) -> bool:
    """Whether `shares`, the fair ones, are the same however much more `leaf` demands.

    It and those above it have less than they want, up to one that wants no more than its limit in any case.
    """
    for queue in tree.chain(leaf):
        wanted = _wanted(tree, queue, pool, demand)
        if wanted == queue.limit_in(pool):
            return True
        if shares[queue.name] >= wanted:
            return False
    return True


def _wanted(tree: Tree, queue: Queue, pool: str, demand: Mapping[str, float]) -> float:
    """What `queue` and those below it can use, each within its limit."""
    below = tree.children.get(queue.name)
    wanted = demand.get(queue.name, 0.0) if below is None else sum(_wanted(tree, q, pool, demand) for q in below)
    limit = queue.limit_in(pool)
    return wanted if limit is None else min(wanted, limit)


def _divide(siblings: list[Queue], pool: str, wanted: Mapping[str, float], amount: float) -> dict[str, float]:
    shares = {}
    for queue in siblings:
        quota = queue.quota_in(pool)
        shares[queue.name] = wanted[queue.name] if quota is None else min(quota, wanted[queue.name])
    left = max(0.0, amount - sum(shares.values()))
    for priority in sorted({queue.priority for queue in siblings}, reverse=True):
        left = _pour([queue for queue in siblings if queue.priority == priority], pool, wanted, shares, left)
    return shares


def _pour(level: list[Queue], pool: str, wanted: Mapping[str, float], shares: dict[str, float], left: float) -> float:
    """Divide `left` by weight among those who still want something; what they leave is returned."""
    thirsty = [queue for queue in level if queue.weight_in(pool) > 0 and wanted[queue.name] > shares[queue.name]]
    while thirsty and left > 0.0:
        per_weight = left / sum(queue.weight_in(pool) for queue in thirsty)
        sated = [q for q in thirsty if wanted[q.name] - shares[q.name] <= per_weight * q.weight_in(pool)]
        if not sated:
            for queue in thirsty:
                shares[queue.name] += per_weight * queue.weight_in(pool)
            return 0.0
        for queue in sated:
            left -= wanted[queue.name] - shares[queue.name]
            shares[queue.name] = wanted[queue.name]
        thirsty = [queue for queue in thirsty if queue not in sated]
    return max(0.0, left)
