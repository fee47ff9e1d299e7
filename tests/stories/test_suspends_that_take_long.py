"""A suspend that is not answered in time has failed, and nothing is lost, unless somebody is owed the Gpu."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StopProcess, SuspendProcess
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Order
from told import Told

TIMEOUT_S = 120.0
COOL_DOWN_S = 30.0
IN_VAIN = Why(Reason.NOT_SAVED, numbers=(TIMEOUT_S,))


@pytest.fixture
def told() -> Told:
    """alice, with 0.9 of the only Gpu, whose user suspends her, and whose process does not answer."""
    told = Told(1, suspend_timeout_s=TIMEOUT_S, cool_down_s=COOL_DOWN_S, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    told.stage.notebook("alice")
    told.stage.holds("alice", 0.9)
    told.entries.clear()
    told.stage.node.tell(ev.SuspendRequested(told.stage.node.now, told.stage.workload("alice").id, "by its user"))
    assert isinstance(told.stage.pending("alice"), SuspendProcess)
    return told


def in_silence(told: Told, seconds: float) -> None:
    """Time passes, and alice's supervisor says nothing; all others do what they are told."""
    node, alice = told.stage.node, told.stage.workload("alice").id
    end = node.now + seconds
    while True:
        for command in [c for c in node.pending if c.workload != alice]:
            node.complete(command)
            node.sample()
        if node.state.timer_at is None or node.state.timer_at > end:
            break
        node.fire_timer()
    node.now = end
    node.sample()


def test_a_suspend_that_nobody_answers_has_failed_and_the_process_goes_on(told: Told) -> None:
    stage = told.stage
    in_silence(told, TIMEOUT_S)
    assert stage.runs("alice")
    assert stage.reason("alice") == Why(Reason.SUSPEND_FAILED, because=(IN_VAIN,))
    assert told.events == [("suspend_failed", None, None)]
    assert told.entries[0]["reason"] == "its variables were not saved within 2 min"


def test_it_is_tried_again_after_a_pause(told: Told) -> None:
    stage = told.stage
    in_silence(told, TIMEOUT_S + COOL_DOWN_S - 1.0)
    assert stage.orders("alice") == ["start", "suspend"]
    in_silence(told, 2.0)
    assert stage.orders("alice") == ["start", "suspend", "suspend"]
    stage.completes("alice")
    assert stage.phase("alice") == "suspended"
    assert (told.events[-1], told.entries[-1]["reason"]) == (("suspended", "GPU 0", None), "by its user")


def test_what_is_saved_later_all_the_same_is_suspended_then(told: Told) -> None:
    stage = told.stage
    suspend = stage.pending("alice")
    in_silence(told, TIMEOUT_S + 1.0)
    assert stage.runs("alice")
    stage.node.pending.append(suspend)
    stage.node.complete(suspend)
    stage.node.sample()
    assert stage.phase("alice") == "suspended"
    assert told.events == [("suspend_failed", None, None), ("suspended", "GPU 0", None)]
    assert told.entries[1]["reason"] == "by its user"
    stage.cell_starts("alice")
    assert stage.runs("alice")
    assert stage.orders("alice") == ["start", "suspend", "start"]


@pytest.mark.parametrize("later_s", [10.0, TIMEOUT_S - 5.0, TIMEOUT_S + 5.0, TIMEOUT_S + COOL_DOWN_S + 5.0])
def test_whoever_is_owed_the_gpu_has_it_at_the_deadline(told: Told, later_s: float) -> None:
    stage = told.stage
    in_silence(told, later_s)
    stage._ids["bob"] = stage.node.submit(name="bob")
    in_silence(told, 27.0)
    assert "stop" not in stage.orders("alice")
    in_silence(told, 2.0)
    assert isinstance(stage.pending("alice"), StopProcess)
    stage.completes("alice")
    in_silence(told, 1.0)
    assert stage.runs("bob")


def test_a_release_does_not_wait_for_it(told: Told) -> None:
    stage = told.stage
    stage.node.release(stage.workload("alice").id)
    pending = stage.workload("alice").pending
    assert pending is not None
    assert pending.order is Order.STOP


def test_new_rules_do_not_change_how_long_was_waited(told: Told) -> None:
    in_silence(told, TIMEOUT_S / 2)
    told.stage.node.tell(
        ev.PolicyChanged(told.stage.node.now, replace(told.stage.node.state.policy, suspend_timeout_s=600.0))
    )
    in_silence(told, TIMEOUT_S / 2)
    assert told.stage.workload("alice").suspend_trouble == IN_VAIN
