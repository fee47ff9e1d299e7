"""Histories of a node that is full, as `benchmarks/step_latency.py` plays them, with every step checked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from effort import examples

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from step_latency import departments, history

from left_out import thinned


@pytest.mark.parametrize("seed", thinned([7, 8, 9], 3, "histories of crowded nodes"))
@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize(("gpus", "workloads"), thinned([(4, 28), (8, 56)], 2, "histories of crowded nodes"))
def test_no_step_on_a_crowded_node_breaks_an_invariant(gpus: int, workloads: int, queues: bool, seed: int) -> None:
    times = history(gpus, workloads, examples(700), departments(gpus) if queues else None, seed)
    assert sum(map(len, times.values())) >= examples(700)
