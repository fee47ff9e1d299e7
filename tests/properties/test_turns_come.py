"""Every cell that waits for its turn at the burst gets it, however the holders' cells follow one another."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from effort import examples
from left_out import thinned
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import WorkloadId

STARVES_S = 60.0
LONGEST_CELL_S = 20
LONGEST_PAUSE_S = 1
SECONDS = 500
# A move takes no time here, so that a residency is the least that the policy has.
RESIDENCY_S = Policy().min_residency_s


@dataclass
class Notebook:
    """One that runs a cell, pauses, and runs the next; what it holds comes back with it."""

    id: WorkloadId
    cell_left_s: int = 0
    ran_s: int = 0
    pause_left_s: int = 0
    waited_s: int = 0


class Node:
    """Notebooks on one or two Gpus that do not all fit with what they hold. They heed no word to yield."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.gpus = self.chance.choice([1, 1, 2])
        self.node = SimulatedNode.of(self.gpus, 16 * GIB, Policy(starvation_s=STARVES_S, residency_per_move=0.0))
        count = self.chance.randint(2, 4) + 2 * (self.gpus - 1)
        self.notebooks = [self._with_saved_state() for _ in range(count)]

    def _with_saved_state(self) -> Notebook:
        """One that holds more than its request, and is away."""
        notebook = Notebook(self.node.submit(request_bytes=2 * GIB, limit_bytes=16 * GIB))
        self.node.settle()
        self.node.hold(notebook.id, self.chance.choice([4, 5, 7, 13]) * GIB)
        self.node.tell(ev.SuspendRequested(self.node.now, notebook.id, "suspended by its user"))
        self.node.settle()
        return notebook

    def play(self) -> None:
        """One history, second by second."""
        for _ in range(SECONDS):
            for notebook in self.notebooks:
                self._second_of(notebook)
            self.node.advance(1)
            self.node.settle()

    def _second_of(self, notebook: Notebook) -> None:
        runs = self.node.of_workload(notebook.id).phase is Phase.RUNNING
        if notebook.cell_left_s and runs:
            notebook.cell_left_s -= 1
            notebook.waited_s = 0
            notebook.ran_s += 1
            if notebook.ran_s >= LONGEST_CELL_S or (not notebook.cell_left_s and self._another_runs(notebook)):
                notebook.cell_left_s = notebook.ran_s = 0
                self.node.finish_cell(notebook.id)
                self.node.settle()
                notebook.pause_left_s = self.chance.randint(0, LONGEST_PAUSE_S)
            else:
                notebook.cell_left_s = max(1, notebook.cell_left_s)
        elif notebook.cell_left_s:
            notebook.waited_s += 1
            others = len(self.notebooks) - 1
            bound = STARVES_S + others * (LONGEST_CELL_S + RESIDENCY_S + 2)
            assert notebook.waited_s <= bound, f"{notebook.id} has waited {notebook.waited_s} s for its turn"
        elif notebook.pause_left_s:
            notebook.pause_left_s -= 1
        else:
            notebook.cell_left_s = self.chance.randint(1, LONGEST_CELL_S)
            self.node.start_cell(notebook.id)
            self.node.settle()

    def _another_runs(self, notebook: Notebook) -> bool:
        """As bad as it can be: no cell ends before its time while no other one runs."""
        states = (self.node.of_workload(other.id) for other in self.notebooks if other is not notebook)
        return any(workload.executing for workload in states)


@pytest.mark.parametrize("seed", thinned(range(examples(8)), 4, "histories of turns"))
def test_a_cell_waits_for_its_turn_as_long_as_starvation_and_a_cell_of_each_other_at_most(seed: int) -> None:
    Node(seed).play()
