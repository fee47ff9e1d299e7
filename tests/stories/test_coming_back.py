"""Who comes back and who does not: failed suspends, stops that crossed, commands that ended, failures that count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StartProcess, StopProcess, SuspendProcess
from nls_scheduler.core.model.reasons import Reason, Why, said
from nls_scheduler.core.planning.plan import targets_in
from stage import TOTAL, Stage, bare

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState


def test_a_suspend_that_met_a_cell_is_tried_again_as_soon_as_the_cell_has_ended() -> None:
    """bob's cell begins while the order is on its way; that is no failure that would need a pause."""
    stage = Stage(1, min_residency_s=2.0, residency_per_move=0.0, cool_down_s=30.0)
    for name in ("alice", "bob"):
        stage.notebook(name)
        stage.after(5)
        stage.cell_starts(name)
        stage.holds(name, 0.7)
        stage.cell_ends(name)
        stage.after(5)
    stage.node.start_cell(stage.workload("alice").id)
    stage.trims()
    assert isinstance(stage.pending("bob"), SuspendProcess)
    stage.node.start_cell(stage.workload("bob").id)
    stage.completes("bob")
    assert stage.runs("bob")
    assert stage.workload("bob").suspend_failed_at is None
    stage.cell_ends("bob")
    assert stage.runs("alice")


def test_a_suspend_never_keeps_a_cell_waiting_for_ever() -> None:
    """The second of two comes when the next cell waits already."""
    stage = Stage(1)
    stage.notebook("alice")
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
    stage.node.start_cell(stage.workload("alice").id)
    assert stage.phase("alice") == "suspending"
    stage.user_suspends("alice")
    assert stage.runs("alice")
    stage.cell_ends("alice")
    stage.user_suspends("alice")
    assert stage.phase("alice") == "suspended"


def test_who_could_not_be_suspended_stays_when_the_reason_to_leave_is_gone() -> None:
    stage = Stage(1, cool_down_s=10.0)
    stage.notebook("alice")
    stage.allocates("alice", 0.9)
    stage._ids["bob"] = stage.node.submit(name="bob")
    stage.trims()
    stage.completes("alice", fail=True)
    stage.ends("bob")
    stage.after(600)
    assert stage.runs("alice")
    assert stage.orders("alice") == ["start", "trim", "suspend"]


def test_who_left_a_gpu_that_went_out_of_service_does_not_read_so_when_it_is_back() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.health(0, healthy=False)
    stage.after(60)
    assert stage.reason("alice") == stage.no_room(0.5, stage.why(Reason.OUT_OF_SERVICE, gpus=[0]))
    stage.health(0, healthy=True)
    assert stage.home("alice") == [0]
    assert stage.phase("alice") == "suspended"
    assert stage.reason("alice") == Why(Reason.OFF)
    stage.cell_starts("alice")
    assert stage.runs("alice")


def test_who_wanted_it_off_reads_that_it_could_not_be_suspended_until_it_is() -> None:
    stage = Stage(1, cool_down_s=10.0)
    stage.notebook("alice")
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
    stage.completes("alice", fail=True)
    assert stage.runs("alice")
    assert stage.reason("alice").kind is Reason.SUSPEND_FAILED
    stage.after(20)
    assert stage.phase("alice") == "suspended"
    assert stage.reason("alice").text == "suspended by its user"


def test_who_wanted_it_off_reads_that_its_cell_ends_first() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
    assert stage.runs("alice")
    assert stage.reason("alice") == Why(Reason.CELL_FIRST, because=(said("suspended by its user"),))
    stage.cell_ends("alice")
    assert stage.phase("alice") == "suspended"
    assert stage.reason("alice") == said("suspended by its user")


def test_a_start_that_takes_too_long_is_stopped_for_that() -> None:
    stage = Stage(1, start_timeout_s=100.0)
    stage._ids["alice"] = stage.node.submit(name="alice")
    stage.node.now += 101.0
    stage.node.fire_timer()
    stop = stage.pending("alice")
    assert isinstance(stop, StopProcess)
    assert stop.reason == Why(Reason.NOT_READY, numbers=(100.0,))


def test_the_answer_to_a_stop_that_found_no_process_ends_no_start_that_came_after() -> None:
    stage = Stage(1)
    stage._ids["book"] = stage.node.submit(name="book")
    assert isinstance(stage.pending("book"), StartProcess)
    stage.node.tell(ev.ProcessExited(stage.node.now, stage.workload("book").id, None, "there was none"))
    assert stage.phase("book") == "starting"
    stage.node.settle()
    assert stage.runs("book")


def test_what_a_process_held_above_its_request_counts_until_it_is_seen_to_be_free() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.lingers("alice")
    stage.ends("alice")
    (releasing,) = stage.node.state.gpus[stage.uuid(0)].releasing
    assert releasing.bytes == int(0.9 * TOTAL)
    stage.command("next", 0.5)
    assert stage.phase("next") == "queued"


@pytest.mark.parametrize("requeue", [False, True])
def test_a_command_that_ended_by_itself_does_not_come_back(*, requeue: bool) -> None:
    stage = Stage(1)
    stage.command("train", requeue=requeue)
    stage.dies("train")
    assert not stage.known("train")


def test_who_is_stopped_for_others_again_and_again_has_not_failed() -> None:
    stage = Stage(1, max_failures=3)
    stage.command("batch", 0.25, 1.0, requeue=True)
    for number in range(5):
        stage.holds("batch", 0.9)
        stage.command(f"owner-{number}", 0.75)
        stage.ends(f"owner-{number}")
    assert stage.runs("batch")
    assert stage.orders("batch").count("stop") == 5
    assert stage.workload("batch").failures == 0


def test_a_command_that_uses_more_than_it_may_starts_again_where_there_is_so_much() -> None:
    stage = Stage(1)
    stage.command("owner", 0.6)
    stage.command("batch", 0.25, 1.0, requeue=True, from_start_bytes=int(0.9 * TOTAL))
    stage.after(600)
    assert stage.orders("batch") == ["start", "stop"]
    assert stage.phase("batch") == "queued"
    assert bare(stage.reason("batch")) == stage.why(Reason.USED_ABOVE_REQUEST, shares=[0.9, 0.25])
    stage.ends("owner")
    stage.after(60)
    assert stage.runs("batch")
    assert stage.orders("batch") == ["start", "stop", "start"]


def test_a_command_that_has_burst_does_not_start_again_beside_the_guarantee_for_which_it_left() -> None:
    """Nobody tells it that there is less now: it would take as much as before, and one of the two would die of that."""
    stage = Stage(2)
    stage.command("full", 0.9)
    stage.command("batch", 0.25, 1.0, requeue=True)
    stage.holds("batch", 0.75)
    stage.command("owner", 0.5)
    assert stage.runs("full", "owner")
    assert stage.orders("batch") == ["start", "stop"]
    assert bare(stage.reason("batch")) == stage.why(Reason.USED_ABOVE_REQUEST, shares=[0.75, 0.25])
    stage.ends("full")
    assert stage.runs("batch", "owner")


def test_a_command_that_never_used_more_than_its_request_starts_again_within_it() -> None:
    stage = Stage(1)
    stage.command("batch", 0.25, 1.0, requeue=True)
    stage.holds("batch", 0.2)
    stage.command("owner", 0.75)
    assert stage.runs("owner", "batch")
    assert stage.orders("batch") == ["start"]


def test_nobody_is_said_to_need_the_gpu_where_a_newcomer_uses_more_than_is_left() -> None:
    stage = Stage(1)
    stage.command("owner", 0.6)
    stage.after(1)
    stage.command("batch", 0.25, 1.0, requeue=True)
    stage.node.hold(stage._ids["batch"], int(0.9 * TOTAL))
    order = stage.pending("batch")
    assert isinstance(order, StopProcess)
    assert order.reason == stage.why(Reason.BURST_NEEDED_BY_REQUESTS, gpus=[0])
    assert stage.cause("batch") is None


@pytest.mark.parametrize("request_share", [0.5, 1.0])
def test_who_has_filled_a_gpu_to_the_brim_comes_back_to_it(request_share: float) -> None:
    """A context is counted as more than it takes, and with that what is saved would be more than the Gpu has."""
    stage = Stage(1)
    stage.notebook("alice", request_share)
    counted = replace(stage.workload("alice"), context_bytes=TOTAL // 30)
    stage.node.state = replace(stage.node.state, workloads={counted.id: counted})
    stage.holds("alice", 0.99)
    stage.user_suspends("alice")
    stage.cell_starts("alice")
    assert stage.runs("alice")


def test_who_stands_still_away_from_home_is_not_said_to_have_used_more_than_its_request() -> None:
    stage = Stage(2, freeze_cells=True)
    stage.node.freezes = stage.node.deaf = True
    stage.command("other", 0.5)
    stage.notebook("bob")
    stage.holds("bob", 0.25)
    stage.cell_starts("bob")
    stage.after(10)
    stage.command("train")
    stage.after(40)
    why = stage.reason("bob")
    assert why.kind is Reason.STANDS_STILL
    assert [each.kind for each in why.because] == [Reason.NOBODY_YIELDS]


def test_one_plan_tells_of_all_who_start_together_whether_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(1)
    names = [f"user {number}" for number in range(4)]
    for name in names:
        stage.notebook(name, 0.25)
    stage.health(0, healthy=False)
    for name in names:
        stage.cell_starts(name)
    assert not any(stage.workload(name).present for name in names)
    assert all(stage.workload(name).sent_off_early for name in names)
    plans: list[NodeState] = []

    def noted(state: NodeState) -> object:
        plans.append(state)
        return targets_in(state)

    monkeypatch.setattr("nls_scheduler.core.orders.who_would_stay.targets_in", noted)
    stage.health(0, healthy=True)
    assert stage.runs(*names)
    assert len(plans) == 1


def test_who_would_have_to_leave_again_at_once_reads_so_and_starts_after_a_while_where_nobody_is_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.health(0, healthy=False)
    stage.cell_starts("alice")
    assert stage.workload("alice").sent_off_early
    monkeypatch.setattr("nls_scheduler.core.orders.who_would_stay.targets_in", lambda state: ({}, frozenset()))
    stage.health(0, healthy=True)
    assert stage.phase("alice") == "suspended"
    assert stage.reason("alice") == stage.why(Reason.WOULD_LEAVE, gpus=[0])
    stage.after(stage.node.state.policy.cool_down_s)
    assert stage.runs("alice")
