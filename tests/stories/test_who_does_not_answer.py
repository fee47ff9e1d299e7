"""What was ordered and nobody has carried out is not told as if it had been."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import EndProcess, InterruptCell
from nls_scheduler.core.orders.giving import outstanding
from nls_scheduler.views.explain import explain
from told import Told

ENDED = "bob needs GPU 0; ended by the daemon, as its supervisor does not answer"


@pytest.fixture
def told() -> Told:
    """alice computes with 0.9 of the only Gpu, of which 0.5 is hers; bob waits for his, and her cell is to end."""
    told = Told(1, reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage = told.stage
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob")
    told.entries.clear()
    while not isinstance(stage.pending("alice"), InterruptCell):
        stage.node.fire_timer()
    return told


def order_of(told: Told) -> InterruptCell:
    order = told.stage.pending("alice")
    assert isinstance(order, InterruptCell)
    return order


def answers(told: Told, *, reached: bool = True) -> None:
    """Her supervisor has told her cell, or says that there was none to be told."""
    node, order = told.stage.node, order_of(told)
    node.tell(ev.CellInterrupted(node.now, order.workload, order.command_id, reached=reached))


def explained(told: Told) -> dict[str, Any]:
    node = told.stage.node
    return explain(node.state, told.stage.workload("alice").id, node.now)


def test_a_cell_is_interrupted_once_somebody_says_so(told: Told) -> None:
    assert told.events == []
    answers(told)
    assert told.events == [("interrupted", "GPU 0", None)]
    assert (told.entries[0]["reason"], told.entries[0]["cause"]["name"]) == ("bob needs GPU 0", "bob")
    answers(told)  # sent again after a lost connection
    assert len(told.entries) == 1


def test_a_cell_that_was_interrupted_and_ended_before_that_was_heard_was_interrupted_all_the_same(told: Told) -> None:
    node, order = told.stage.node, order_of(told)
    node.tell(ev.CellFinished(node.now, order.workload))
    node.tell(ev.CellInterrupted(node.now, order.workload, order.command_id))
    assert told.events == [("interrupted", "GPU 0", None)]


def test_a_cell_that_was_over_before_it_could_be_interrupted_was_not(told: Told) -> None:
    answers(told, reached=False)
    assert told.events == []


def test_who_hears_nothing_has_interrupted_nobody_and_the_daemon_has_ended_the_process(
    told: Told,
) -> None:
    given = "The order to interrupt its cell has been given: bob needs GPU 0."
    assert given in explained(told)["steps"]
    while not isinstance(told.stage.pending("alice"), EndProcess):
        told.stage.node.fire_timer()
    assert f"The order to end has been given: {ENDED}." in explained(told)["steps"]
    told.stage.completes("alice")
    assert told.events[:1] == [("evicted", "GPU 0", None)]
    assert (told.entries[0]["reason"], told.entries[0]["cause"]["name"]) == (ENDED, "bob")
    order = next(c for _, given in told.stage.node.history for c in given if isinstance(c, InterruptCell))
    told.stage.node.tell(ev.CellInterrupted(told.stage.node.now, order.workload, order.command_id))  # too late
    assert "interrupted" not in [event for event, _, _ in told.events]


def test_who_connects_again_is_told_to_interrupt_the_cell_in_the_time_that_is_left(told: Told) -> None:
    node, order = told.stage.node, order_of(told)
    node.now += 3.0
    node.sample()
    again = outstanding(node.state, told.stage.workload("alice"))
    assert again == replace(order, grace_s=order.grace_s - 3.0)
    node.tell(ev.CellFinished(node.now, order.workload))
    assert not isinstance(outstanding(node.state, told.stage.workload("alice")), InterruptCell)
