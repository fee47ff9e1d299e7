"""Nobody waits for nothing: who waits long has what it waits for kept free, and nothing else is kept free for it.

The oracle counts for itself: requests at home on a Gpu, pools by their lists, and who came before whom.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from effort import examples
from left_out import thinned
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.workload import Workload

GPUS = 4
SECOND = ("2", "3")
STARVES_S = 100.0
LONGEST_S = 60
STEP_S = 5
STEPS = 200
POOLS = (("default",), ("second",), ("second", "default"))


@dataclass
class Node:
    """Commands that come and end; a Gpu may break on the way."""

    chance: random.Random
    ends_at: dict[WorkloadId, float] = field(default_factory=dict)
    ahead: dict[WorkloadId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.node = SimulatedNode.of(
            GPUS, 16 * GIB, Policy(starvation_s=STARVES_S, pools=(Pool("second", gpus=SECOND),))
        )
        self.breaks_at = self.chance.choice([None, 0.0, STEPS * STEP_S / 3])

    def play(self) -> None:
        """One history; every moment of it is looked at."""
        for _ in range(STEPS):
            for key, at in list(self.ends_at.items()):
                if at <= self.node.now:
                    del self.ends_at[key]
                    self.node.release(key)
                    self.node.settle()
            if self.breaks_at is not None and self.breaks_at <= self.node.now:
                self.breaks_at = None
                broken = self.chance.choice(sorted(self.node.state.gpus))
                self.node.set_health(broken, healthy=False)
                self.node.settle()
            if self.chance.random() < 0.3:
                self.submit()
            self.look()
            self.node.advance(STEP_S)

    def submit(self) -> None:
        """One command, for as long as chance has it."""
        request, pools = self.chance.choice([2, 4, 8, 12, 16]) * GIB, self.chance.choice(POOLS)
        count = self.chance.choice([1, 1, 1, 1, 2]) if "second" not in pools or len(pools) == 1 else 1
        waiting = len(self.waiting())
        key = self.node.submit(
            kind=Kind.COMMAND, request_bytes=request, limit_bytes=request, gpu_count=count, pools=pools
        )
        self.ahead[key] = waiting
        self.node.settle()

    def waiting(self) -> list[Workload]:
        """Who has no home, the first to come first."""
        without = (w for w in self.node.state.workloads.values() if not w.home and w.release_reason is None)
        return sorted(without, key=lambda w: (w.submitted_at, w.id))

    def look(self) -> None:
        """The two sentences, now."""
        for workload in self.node.state.workloads.values():
            if workload.home and workload.id not in self.ends_at:
                self.ends_at[workload.id] = self.node.now + self.chance.randint(1, LONGEST_S)
        waiting = self.waiting()
        for place, workload in enumerate(waiting):
            before = waiting[:place]
            free = [gpu for gpu in self.gpus_for(workload) if self.free_bytes(gpu) >= workload.spec.request_bytes]
            kept = [gpu for gpu in free if any(self.is_kept_for(other, gpu) for other in before)]
            left = len(free) - len(kept)
            assert left < workload.spec.gpu_count, f"{workload.id} waits beside room at {self.node.now}"
            if len(self.gpus_for(workload)) >= workload.spec.gpu_count:
                waited = self.node.now - workload.submitted_at
                bound = STARVES_S + (1 + self.ahead[workload.id]) * (LONGEST_S + STEP_S)
                assert waited <= bound, f"{workload.id} has waited {waited} s, {self.ahead[workload.id]} before it"

    def gpus_for(self, workload: Workload) -> list[Gpu]:
        """Those that could ever be its."""
        wanted = workload.spec.pools
        return [
            gpu
            for gpu in self.node.state.gpus.values()
            if gpu.healthy
            and ("second" if str(gpu.index) in SECOND else "default") in wanted
            and gpu.memory_total_bytes >= workload.spec.request_bytes
        ]

    def free_bytes(self, gpu: Gpu) -> int:
        """What no home takes."""
        at_home = (w for w in self.node.state.workloads.values() if gpu.uuid in w.home)
        return gpu.memory_total_bytes - sum(w.spec.request_bytes for w in at_home)

    def is_kept_for(self, other: Workload, gpu: Gpu) -> bool:
        """Whether `other` has waited so long that room on `gpu` is kept for it, which it could use one day."""
        starves = self.node.now - other.submitted_at >= STARVES_S
        could = self.gpus_for(other)
        return starves and gpu in could and len(could) >= other.spec.gpu_count


@pytest.mark.parametrize("seed", thinned(range(examples(12)), 4, "histories of waiting"))
def test_nobody_waits_beside_room_nor_for_longer_than_starvation_and_those_before_it(seed: int) -> None:
    Node(random.Random(seed)).play()
