"""Cells that stand still, in any order of what else happens: each goes on in its own process, or its end is known.

Every step is held against `invariants.check` besides.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from effort import examples
from left_out import thinned
from nls_scheduler.core.model.commands import EndProcess, FreezeProcess, StopProcess, ThawProcess
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import WorkloadId

MOST_WORKLOADS = 7
STEPS = 120
HOST_BYTES = 20 * GIB
SEEDS = thinned(range(examples(60)), 20, "histories in which cells stand still")


@dataclass
class WatchedNode(SimulatedNode):
    """Counts what was ordered, and sees that nothing that stands still is ended."""

    given: dict[type, int] = field(default_factory=dict)

    def tell(self, event: Event) -> tuple[Command, ...]:
        """As every node's, and looked at."""
        commands = super().tell(event)
        for command in commands:
            self.given[type(command)] = self.given.get(type(command), 0) + 1
            if isinstance(command, StopProcess | EndProcess):
                process = self.workloads[command.workload].process
                answered = command.workload not in {p.workload for p in self.pending[:-1]}
                assert process is None or not process.frozen or not answered, f"{command} meets a frozen process"
        frozen_bytes = sum(process.held_bytes for process in self.processes if process.frozen and process.alive)
        assert self.host_bytes is None or frozen_bytes <= self.host_bytes, "more stands still than host memory holds"
        return commands


def a_node(seed: int, gpus: int = 2, **policy: object) -> tuple[WatchedNode, random.Random]:
    chance = random.Random(seed)
    fields = {"freeze_cells": True, "oversubscribe": chance.choice([1.0, 1.0, 2.0]), **policy}
    node = WatchedNode.of(gpus, 16 * GIB, Policy(**fields))  # type: ignore[arg-type]  # any of its numbers
    node.freezes, node.deaf = True, chance.random() < 0.5
    node.host_bytes = HOST_BYTES if seed % 3 == 1 else None
    return node, chance


def comes(node: WatchedNode, chance: random.Random) -> None:
    if chance.random() < 0.4:
        request = chance.choice([8, 16]) * GIB
        node.submit(kind=Kind.COMMAND, request_bytes=request, limit_bytes=16 * GIB, requeue=chance.random() < 0.5)
    else:
        request = chance.choice([4, 8, 8, 16]) * GIB
        node.submit(held_bytes=chance.choice([1, 4, 8, 12]) * GIB, request_bytes=request, limit_bytes=16 * GIB)


def happens(node: WatchedNode, chance: random.Random, key: WorkloadId) -> None:
    """Something to one workload."""
    workload, drawn = node.workloads[key], chance.random()
    if workload.spec.kind is Kind.COMMAND:
        if drawn < 0.3:
            node.end_well(key)
    elif drawn < 0.1 and workload.executing:
        node.finish_cell(key)
    elif drawn < 0.6 and not workload.executing:
        node.start_cell(key)
    elif drawn < 0.88 and workload.process is not None and not workload.process.frozen:
        workload.process.held_bytes = min(workload.spec.limit_bytes, chance.choice([4, 8, 12]) * GIB)
        node.sample()
    elif drawn < 0.91:
        node.kill(key)
    elif drawn < 0.95:
        node.release(key)
    else:
        node.go_down()
        if node.pending and chance.random() < 0.5:
            node.complete(chance.choice(node.pending), fail=chance.random() < 0.3)
        node.come_back()


def play(seed: int) -> WatchedNode:
    """One history."""
    node, chance = a_node(seed, gpus=chance_of_gpus(seed))
    for _ in range(STEPS):
        keys = sorted(node.state.workloads)
        if chance.random() < 0.25 and len(keys) < MOST_WORKLOADS:
            comes(node, chance)
        elif keys:
            happens(node, chance, chance.choice(keys))
        if node.pending and chance.random() < 0.5:
            node.complete(chance.choice(node.pending), fail=chance.random() < 0.2)
        elif chance.random() < 0.6:
            node.settle()
        node.advance(chance.choice([1, 5, 5, 20]))
    return node


def chance_of_gpus(seed: int) -> int:
    return 1 + seed % 3


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_breaks_a_sentence_when_cells_stand_still(seed: int) -> None:
    node = play(seed)
    frozen = [w for w in node.state.workloads.values() if w.frozen is not None]
    assert all(node.workloads[w.id].process is not None for w in frozen)


def test_cells_stand_still_and_go_on_in_these_histories() -> None:
    given = play(0).given
    assert given.get(FreezeProcess, 0) > 0
    assert given.get(ThawProcess, 0) > 0


@pytest.mark.parametrize("seed", [*SEEDS, 1235])  # one that left for another home, and could never go on where it was
def test_what_stands_still_goes_on_when_everybody_else_has_gone(seed: int) -> None:
    node, chance = play(seed), random.Random(seed)
    node.settle()
    stand = [key for key, w in node.state.workloads.items() if w.frozen is not None and w.release_reason is None]
    for key in sorted(node.state.workloads.keys() - set(stand)):
        node.release(key)
        node.settle()
    for _ in range(len(stand) + 2):
        node.advance(100)
        for key in stand:
            record = node.state.workloads[key]
            if record.phase is Phase.RUNNING and node.workloads[key].executing and chance.random() < 0.9:
                node.finish_cell(key)
        node.settle()
    left = [key for key in stand if key in node.state.workloads and node.state.workloads[key].frozen is not None]
    assert [key for key in left if node.workloads[key].executing] == []  # others come back with their next cell


@pytest.mark.parametrize("seed", range(12))
def test_however_many_are_to_stand_still_at_once_host_memory_holds_those_that_do(seed: int) -> None:
    node, chance = a_node(seed, gpus=4, oversubscribe=1.0)
    node.host_bytes = chance.randrange(6, 16) * GIB
    borrowers = [node.submit(held_bytes=GIB, request_bytes=4 * GIB, limit_bytes=16 * GIB) for _ in range(4)]
    for key in borrowers:
        node.start_cell(key)
        node.settle()
        process = node.workloads[key].process
        assert process is not None
        process.held_bytes = chance.randrange(3, 9) * GIB
    node.sample()
    for _ in range(3):
        node.submit(kind=Kind.COMMAND, request_bytes=16 * GIB, limit_bytes=16 * GIB)
    node.settle()
    while FreezeProcess not in node.given:
        node.fire_timer()
    while node.pending:
        node.complete(chance.choice(node.pending))
        node.sample()
    assert node.given[FreezeProcess] >= 2
