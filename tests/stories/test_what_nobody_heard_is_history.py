"""What came to an end while the daemon was away: its history tells it as if somebody had heard it."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model import events as ev
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
