"""What came to an end while the daemon was away, or goes on after it: its history tells it as if it had not died."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import InterruptCell
from nls_scheduler.core.model.spec import Kind
from stage import TOTAL
from told import Told


def test_a_suspend() -> None:
    told = Told(1)
    told.stage.notebook("alice")
    told.stage.holds("alice", 0.25)
    told.stage.node.tell(ev.SuspendRequested(told.stage.node.now, told.stage.workload("alice").id, "by its user"))
    told.while_away(lambda: told.stage.completes("alice"))
    assert told.events == [("suspended", "GPU 0", None)]
    assert (told.entries[0]["reason"], told.entries[0]["bytes"]) == ("by its user", TOTAL // 4)


def test_a_move_whose_first_half_was_done() -> None:
    told = Told(2)
    told.stage.notebook("alice")
    told.stage.holds("alice", 0.25)
    node = told.stage.node
    node.tell(ev.MigrateRequested(node.now, told.stage.workload("alice").id, told.stage.uuid(1)))
    told.while_away(lambda: told.stage.completes("alice"))
    assert told.events == [("moved", "GPU 0", "GPU 1")]
    assert (told.entries[0]["reason"], told.entries[0]["bytes"]) == ("its user wants it on GPU 1", TOTAL // 4)


def for_training() -> Told:
    """bob, who borrows GPU 1, leaves it for a command that needs all of it, and is on the way home to GPU 0."""
    told = Told(2)
    told.stage.notebook("alice")
    told.stage.notebook("bob")
    told.stage.holds("alice", 0.25)
    told.stage.holds("bob", 0.125)
    told.stage._ids["training"] = told.stage.node.submit(
        name="training", kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL
    )
    assert (told.stage.gpu("bob"), told.stage.phase("bob")) == (1, "suspending")
    return told


@pytest.mark.parametrize("ended", [False, True])
def test_a_move_whose_second_half_was_under_way(ended: bool) -> None:
    """With who made it necessary, who may have ended since."""
    told = for_training()
    told.stage.completes("bob")
    assert (told.stage.gpu("bob"), told.stage.phase("bob")) == (0, "starting")
    node = told.stage.node
    node.now += 2.0
    if ended:
        node.tell(ev.SupervisorLost(node.now, told.stage.workload("training").id, "it has ended"))
    told.while_away(lambda: told.stage.completes("bob"))
    moved = next(entry for entry in told.entries if entry["name"] == "bob")
    assert (moved["event"], moved["from"], moved["to"]) == ("moved", "GPU 1", "GPU 0")
    assert (moved["reason"], moved["cause"]["name"]) == ("training needs GPU 1", "training")
    assert (moved["bytes"], moved["seconds"]) == (TOTAL // 8, 2.0)


def test_a_move_that_was_only_ordered() -> None:
    told = for_training()
    told.while_away(lambda: None)
    moved = next(entry for entry in told.entries if entry["name"] == "bob")
    assert (moved["event"], moved["from"], moved["to"]) == ("moved", "GPU 1", "GPU 0")
    assert (moved["reason"], moved["cause"]["name"]) == ("training needs GPU 1", "training")


def test_a_suspend_that_was_told_before_is_not_told_again() -> None:
    told = Told(1)
    told.stage.notebook("alice")
    told.stage.user_suspends("alice")
    assert told.events[-1] == ("suspended", "GPU 0", None)
    told.while_away(lambda: None)
    assert told.events == []
    told.stage.cell_starts("alice")
    assert told.events == [("resumed", None, "GPU 0")]


def test_a_stop_that_was_under_way() -> None:
    told = Told(1)
    told.stage.command("guest", 0.25, 1.0, requeue=True)
    told.stage.holds("guest", 0.9)
    told.stage._ids["owner"] = told.stage.node.submit(name="owner", kind=Kind.COMMAND)
    assert told.stage.phase("guest") == "suspending"
    told.while_away(lambda: told.stage.completes("guest"))
    evicted = told.entries[0]
    assert (evicted["event"], evicted["reason"]) == ("evicted", "owner needs GPU 0")
    assert evicted["cause"]["name"] == "owner"


@pytest.mark.parametrize("heard", [False, True])
def test_an_interrupt_is_told_once(heard: bool) -> None:
    told = Told(1, reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage = told.stage
    stage.node.deaf = True
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob")
    while not isinstance(stage.pending("alice"), InterruptCell):
        stage.node.fire_timer()
    order = stage.pending("alice")
    assert order is not None
    answer = ev.CellInterrupted(stage.node.now, order.workload, order.command_id)
    if heard:
        stage.node.tell(answer)
    told.while_away(lambda: None)
    stage.node.tell(answer)
    assert [event for event, _, _ in told.events].count("interrupted") == (0 if heard else 1)


def test_a_start() -> None:
    told = Told(1)
    told.stage._ids["alice"] = told.stage.node.submit(name="alice")
    told.while_away(lambda: told.stage.completes("alice"))
    assert told.events == [("started", None, "GPU 0")]


@pytest.mark.parametrize("kind", ["notebook", "command"])
def test_an_end(kind: str) -> None:
    told = Told(1)
    (told.stage.notebook if kind == "notebook" else told.stage.command)("alice")
    told.while_away(lambda: told.stage.node.kill(told.stage.workload("alice").id))
    assert told.events[0] == ("exited", "GPU 0", None)
    assert told.entries[0]["reason"] == "it ended while the daemon was away"
    assert "released" not in [event for event, _, _ in told.events]


def standing_still() -> Told:
    """alice's cell, for bob's; he has gone since, and it has been told to go on."""
    told = Told(1, freeze_cells=True, freeze_timeout_s=8.0)
    stage = told.stage
    stage.node.freezes = True
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob")
    stage.cell_starts("bob")
    stage.after(11)
    stage.node.release(stage.workload("bob").id)
    stage.completes("bob")
    assert stage.phase("alice") == "starting"
    return told


def test_the_end_of_what_stands_still() -> None:
    told = standing_still()
    told.while_away(lambda: told.stage.node.kill(told.stage.workload("alice").id))
    assert ("exited", "GPU 0", None) in told.events


def test_a_cell_that_goes_on() -> None:
    told = standing_still()
    told.while_away(lambda: told.stage.completes("alice"))
    assert told.events == [("thawed", None, "GPU 0")]


def test_a_cell_that_could_not_go_on() -> None:
    told = standing_still()
    told.while_away(lambda: told.stage.completes("alice", fail=True))
    assert told.events[0] == ("thaw_failed", None, None)
