"""Who is owed room by its queue has a home where others' queues have more than their share, and enough of it.

The oracle counts for itself, and tries every few others in every order.
"""

from __future__ import annotations

import random
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING, Any

import pytest

from effort import examples
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nls_scheduler.core.model.workload import Workload

    Unit = tuple[Workload, ...]

TOTAL = 16
FEW = 3
NOT_PREEMPTIBLE_FROM = 100
CHAINS = {"a": ("a",), "b1": ("b1", "b"), "b2": ("b2", "b")}
"""The queues in which one counts that names this one."""


class Node:
    """As many come as there is hardly room for, to queues whose quotas are all the shares there are; some leave.

    Attributes:
        units: everybody, each with its gang: who has a home together or not at all.
    """

    def __init__(self, seed: int, gpus: Sequence[int], crowd: Sequence[int], *, gangs: float = 0.0) -> None:
        """`crowd`: how many of them come for each Gpu, at least and at most; `gangs`: so many of them are two each."""
        chance = random.Random(seed)
        count = chance.choice(gpus)
        self.shares = {name: chance.randint(0, count * TOTAL) for name in ("a", "b", "b1", "b2")}
        queues = (
            Queue(
                name,
                parent="b" if name in ("b1", "b2") else None,
                quota={"default": share / TOTAL},
                over_quota_weight={"default": 0.0},
            )
            for name, share in self.shares.items()
        )
        self.node = SimulatedNode.of(count, TOTAL * GIB, Policy(queues=tuple(queues)))
        for number in range(chance.randint(crowd[0] * count, crowd[1] * count)):
            requests, priority = [chance.randint(1, 10)], chance.choice([0, 0, 50, NOT_PREEMPTIBLE_FROM])
            wanted: dict[str, Any] = {"queue": chance.choice([*CHAINS]), "priority": priority}
            if gangs and chance.random() < gangs:
                requests.append(chance.randint(1, 10))
                wanted |= {"kind": Kind.COMMAND, "gang": f"gang-{number}", "gang_size": 2}
            for request in requests:
                self.node.submit(request_bytes=request * GIB, limit_bytes=TOTAL * GIB, **wanted)
            self.node.settle()
            if chance.random() < 0.2:
                self.node.release(chance.choice(sorted(self.node.state.workloads)))
                self.node.settle()
        units = dict[str, list["Workload"]]()
        for workload in self.node.state.workloads.values():
            units.setdefault(workload.spec.gang or workload.id, []).append(workload)
        self.units = [tuple(unit) for unit in units.values()]

    def waiting(self) -> Iterator[Unit]:
        """Who is in line, and in no gang part of which runs; only quotas let those in who could not be displaced."""
        for unit in self.units:
            whole = len(unit) == unit[0].spec.gang_size and all(w.release_reason is None for w in unit)
            at_rest = len(unit) == 1 or not any(w.current for w in unit)
            if whole and at_rest and not unit[0].home and unit[0].spec.priority < NOT_PREEMPTIBLE_FROM:
                yield unit

    def way(self, waiters: Unit) -> tuple[Unit, ...] | None:
        """A few others who are enough, each of queues above their shares when its turn to go comes.

        For a gang the room of each is needed: nobody goes only so that another may.
        """
        queue = waiters[0].spec.queue
        used = {
            name: sum(sum(map(_size, unit)) for unit in self.units if name in CHAINS[unit[0].spec.queue])
            for name in self.shares
        }
        free = {
            uuid: TOTAL * GIB - sum(w.spec.request_bytes for unit in self.units for w in unit if w.home == (uuid,))
            for uuid in self.node.state.gpus
        }
        may = [
            unit
            for unit in self.units
            if all(w.home for w in unit)
            and unit[0].spec.queue != queue
            and unit[0].spec.priority < NOT_PREEMPTIBLE_FROM
        ]
        for count in range(FEW + 1):
            for some in combinations(may, count):
                spared = ([unit for unit in some if unit is not one] for one in some if len(waiters) > 1)
                if not _fit(waiters, free, some) or any(_fit(waiters, free, fewer) for fewer in spared):
                    continue
                for order in permutations(some):
                    if self._may_go(order, dict(used), CHAINS[queue], sum(w.spec.request_bytes for w in waiters)):
                        return order
        return None

    def _may_go(self, some: Iterable[Unit], used: dict[str, int], chain: tuple[str, ...], size: int) -> bool:
        for victims in some:
            theirs = CHAINS[victims[0].spec.queue]
            within = {chain[0], *(name for name in chain if name not in theirs)}
            if any(used[name] + size > self.shares[name] * GIB for name in within):
                return False
            if any(used[name] <= self.shares[name] * GIB for name in theirs if name not in chain):
                return False
            for name in theirs:
                used[name] -= sum(map(_size, victims))
        return True


def _size(workload: Workload) -> int:
    return workload.spec.request_bytes if workload.home else 0


def _fit(waiters: Unit, free: dict[str, int], others: Iterable[Unit]) -> bool:
    """Whether all of `waiters` have room where `others` were, and beside everybody else."""
    free = dict(free)
    for workload in (w for unit in others for w in unit):
        free[workload.home[0]] += workload.spec.request_bytes
    for home in product(free, repeat=len(waiters)):
        left = dict(free)
        for workload, uuid in zip(waiters, home, strict=True):
            left[uuid] -= workload.spec.request_bytes
        if all(left[uuid] >= 0 for uuid in home):
            return True
    return False


@pytest.mark.parametrize("block", range(5))
def test_who_is_owed_room_by_its_queue_waits_only_where_no_others_homes_would_do(block: int) -> None:
    waits = 0
    count = examples(200)
    for seed in range(block * count, (block + 1) * count):
        node = Node(seed, (1, 2, 2, 3), (4, 8))
        for waiter in node.waiting():
            waits += 1
            assert node.way(waiter) is None, (seed, waiter[0].id)
    assert waits >= count


@pytest.mark.parametrize("block", range(4))
def test_a_gang_that_is_owed_room_waits_only_where_no_others_homes_would_do(block: int) -> None:
    waits = 0
    count = examples(200)
    for seed in range(block * count, (block + 1) * count):
        node = Node(seed, (2, 2, 3), (2, 5), gangs=0.5)
        for waiters in node.waiting():
            waits += 1
            assert node.way(waiters) is None, (seed, waiters[0].id)
    assert waits >= min(count // 2, count - 3)  # of very few, as mutants are tried with, fewer wait
