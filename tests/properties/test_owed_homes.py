"""Who is owed room by its queue has a home where others' queues have more than their share, and enough of it.

The oracle counts for itself, and tries every few others on one Gpu in every order.
"""

from __future__ import annotations

import random
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from effort import examples
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nls_scheduler.core.model.workload import Workload

TOTAL = 16
FEW = 3
NOT_PREEMPTIBLE_FROM = 100
CHAINS = {"a": ("a",), "b1": ("b1", "b"), "b2": ("b2", "b")}
"""The queues in which one counts that names this one."""


class Node:
    """As many come as there is hardly room for, to queues whose quotas are all the shares there are; some leave."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        gpus = chance.choice([1, 2, 2, 3])
        self.shares = {name: chance.randint(0, gpus * TOTAL) for name in ("a", "b", "b1", "b2")}
        queues = (
            Queue(
                name,
                parent="b" if name in ("b1", "b2") else None,
                quota={"default": share / TOTAL},
                over_quota_weight={"default": 0.0},
            )
            for name, share in self.shares.items()
        )
        self.node = SimulatedNode.of(gpus, TOTAL * GIB, Policy(queues=tuple(queues)))
        for _ in range(chance.randint(4 * gpus, 8 * gpus)):
            request, priority = chance.randint(1, 10) * GIB, chance.choice([0, 0, 50, NOT_PREEMPTIBLE_FROM])
            wanted = {"queue": chance.choice([*CHAINS]), "priority": priority}
            self.node.submit(request_bytes=request, limit_bytes=TOTAL * GIB, **wanted)
            self.node.settle()
            if chance.random() < 0.2:
                self.node.release(chance.choice(sorted(self.node.state.workloads)))
                self.node.settle()
        self.everybody = list(self.node.state.workloads.values())

    def waiting(self) -> list[Workload]:
        """Who is in line and could be displaced in turn: only quotas let the others in."""
        return [w for w in self.everybody if not w.home and w.spec.priority < NOT_PREEMPTIBLE_FROM]

    def way(self, waiter: Workload) -> tuple[Workload, ...] | None:
        """A few others on one Gpu that are enough, each of queues above their shares when its turn to go comes."""
        size, chain = waiter.spec.request_bytes, CHAINS[waiter.spec.queue]
        used = {
            name: sum(w.spec.request_bytes for w in self.everybody if w.home and name in CHAINS[w.spec.queue])
            for name in self.shares
        }
        for uuid in self.node.state.gpus:
            there = [w for w in self.everybody if w.home == (uuid,)]
            left = TOTAL * GIB - sum(w.spec.request_bytes for w in there)
            may = [w for w in there if w.spec.queue != waiter.spec.queue and w.spec.priority < NOT_PREEMPTIBLE_FROM]
            for count in range(1, FEW + 1):
                for some in permutations(may, count):
                    enough = left + sum(w.spec.request_bytes for w in some) >= size
                    if enough and self._may_go(some, dict(used), chain, size):
                        return some
        return None

    def _may_go(self, some: Iterable[Workload], used: dict[str, int], chain: tuple[str, ...], size: int) -> bool:
        for victim in some:
            theirs = CHAINS[victim.spec.queue]
            within = {chain[0], *(name for name in chain if name not in theirs)}
            if any(used[name] + size > self.shares[name] * GIB for name in within):
                return False
            if any(used[name] <= self.shares[name] * GIB for name in theirs if name not in chain):
                return False
            for name in theirs:
                used[name] -= victim.spec.request_bytes
        return True


@pytest.mark.parametrize("block", range(5))
def test_who_is_owed_room_by_its_queue_waits_only_where_no_others_homes_would_do(block: int) -> None:
    waits = 0
    count = examples(200)
    for seed in range(block * count, (block + 1) * count):
        node = Node(seed)
        for waiter in node.waiting():
            waits += 1
            assert node.way(waiter) is None, (seed, waiter.id)
    assert waits >= count
