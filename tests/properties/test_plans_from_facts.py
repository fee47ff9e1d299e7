"""A plan follows from what has happened: a daemon that has forgotten its last plan decides as one that has not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from effort import examples
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from test_histories import Histories
from test_queue_histories import QueueHistories

from nls_scheduler.core import simulator
from nls_scheduler.core.planning.plan import make_plan
from stage import Stage

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from step_latency import departments, history


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is taken with the last plan and all that is remembered of it, and without."""
    step = simulator.step

    def twice(state, event):
        after = step(state, event)
        assert step(replace(state, plan={}, settled=False, remembered=None), event) == after
        return after

    monkeypatch.setattr(simulator, "step", twice)


def test_samples_of_an_idle_node_make_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.command("training")
    stage.node.settle()
    planned = []
    monkeypatch.setattr("nls_scheduler.core.step.make_plan", lambda state: planned.append(state) or make_plan(state))
    for _ in range(3):
        stage.node.now += 1.0
        stage.node.sample()
    assert len(planned) <= 1
    stage.holds("alice", 0.6)
    assert len(planned) > 1


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("queues", [False, True])
def test_on_a_crowded_node_the_last_plan_changes_nothing(queues: bool) -> None:
    assert history(4, 28, examples(150), departments(4) if queues else None, 3)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("machine", [Histories, QueueHistories])
def test_in_random_histories_the_last_plan_changes_nothing(machine: type[Histories]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(12),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
