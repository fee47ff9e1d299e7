"""A running cell is never stopped for a guarantee before it was told to leave, and then had its time to."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from effort import examples
from nls_scheduler.core.model.commands import InterruptCell, StopProcess
from nls_scheduler.core.model.events import SupervisorLost
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.workload import Workload

GPUS = 2
MOST_WORKLOADS = 8
STEPS = 120


@dataclass
class WatchedNode(SimulatedNode):
    """Knows since when each workload has been told to leave for a guarantee, and who was interrupted since."""

    told: dict[WorkloadId, float] = field(default_factory=dict)
    interrupted: set[WorkloadId] = field(default_factory=set)
    stops: int = 0

    def tell(self, event: Event) -> tuple[Command, ...]:
        """As every node's, and looked at."""
        commands = super().tell(event)
        for key, entry in self.state.plan.items():
            workload = self.state.workloads[key]
            if workload.current and entry.target != workload.current and entry.deadline_at is not None:
                self.told.setdefault(key, self.now)
            else:
                self.told.pop(key, None)
                self.interrupted.discard(key)
        self.interrupted |= {c.workload for c in commands if isinstance(c, InterruptCell)}
        for command in commands:
            if isinstance(command, StopProcess) and not isinstance(event, SupervisorLost):
                self._stopped(self.state.workloads[command.workload])
        return commands

    def _stopped(self, workload: Workload) -> None:
        if (
            workload.spec.kind is not Kind.NOTEBOOK
            or workload.cell_since is None
            or workload.release_reason is not None
        ):
            return
        self.stops += 1
        told = self.told.get(workload.id, self.now)
        assert self.now >= told + self.state.policy.ladder_s, f"{workload.id} was told at {told}, stopped at {self.now}"
        assert workload.id in self.interrupted


def play(seed: int) -> int:
    """One history; how many running cells it stopped."""
    chance = random.Random(seed)
    node = WatchedNode.of(GPUS, 16 * GIB)
    node.deaf = True
    for _ in range(STEPS):
        drawn, keys = chance.random(), sorted(node.state.workloads)
        if drawn < 0.25 and len(keys) < MOST_WORKLOADS:
            if chance.random() < 0.4:
                request = chance.choice([8, 16]) * GIB
                node.submit(kind=Kind.COMMAND, request_bytes=request, limit_bytes=16 * GIB, requeue=True)
            else:
                node.submit(request_bytes=chance.choice([4, 8, 16]) * GIB, limit_bytes=16 * GIB)
        elif keys:
            key = chance.choice(keys)
            workload = node.workloads[key]
            if drawn < 0.7 and workload.spec.kind is Kind.NOTEBOOK:
                (node.finish_cell if workload.executing else node.start_cell)(key)
            elif drawn < 0.8:
                node.release(key)
        node.settle()
        node.advance(chance.choice([1, 5, 60]))
    return node.stops


@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_cell_is_told_and_interrupted_before_it_is_stopped(seed: int) -> None:
    play(seed)


def test_there_are_cells_that_are_stopped() -> None:
    assert play(2) > 0
