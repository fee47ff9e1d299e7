"""A running cell that has to leave for a guarantee stands still in host memory, and goes on where it was."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import (
    FreezeProcess,
    StartProcess,
    StopProcess,
    SuspendProcess,
    ThawProcess,
    TrimMemory,
)
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.views.explain import explain
from stage import TOTAL, Stage

NUMBERS = {"reclaim_deadline_s": 30.0, "stop_grace_s": 2.0, "interrupt_grace_s": 10.0, "freeze_timeout_s": 8.0}


def a_stage(gpus: int = 1, **policy: object) -> Stage:
    stage = Stage(gpus, **{"freeze_cells": True, **NUMBERS, **policy})
    stage.node.freezes = True
    return stage


def a_long_cell(**policy: object) -> Stage:
    """alice computes with 0.9 of the only Gpu, of which 0.5 is guaranteed to her; a cell of bob's waits for his 0.5."""
    stage = a_stage(**policy)
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob")
    stage.cell_starts("bob")
    return stage


def a_cell_that_stands_still() -> Stage:
    stage = a_long_cell()
    stage.after(11)
    assert stage.phase("alice") == "suspended"
    assert stage.runs("bob")
    return stage


def a_borrower_that_stands_still(**policy: object) -> Stage:
    """bob's cell borrowed GPU 1 within his request; a command came to be at home there."""
    stage = a_stage(2, **policy)
    stage.notebook("alice")
    stage.notebook("bob")
    assert stage.gpu("bob") == 1
    assert stage.home("bob") == [0]
    for name in ("alice", "bob"):
        stage.cell_starts(name)
        stage.allocates(name, 0.4)
    stage.command("training")
    stage.after(11)
    assert stage.phase("bob") == "suspended"
    assert stage.runs("training", "alice")
    return stage


def test_a_running_cell_is_frozen_before_it_would_be_interrupted_and_goes_on_when_there_is_room() -> None:
    stage = a_long_cell()
    process = stage.workload("alice").process
    stage.after(9)
    assert stage.orders("alice") == ["start", "trim"]
    stage.after(2)
    assert stage.orders("alice") == ["start", "trim", "freeze"]
    assert stage.runs("bob")
    stage.after(100)
    assert stage.orders("alice") == ["start", "trim", "freeze"]
    stage.ends("bob")
    assert stage.orders("alice") == ["start", "trim", "freeze", "thaw"]
    assert stage.runs("alice")
    alice = stage.workload("alice")
    assert (alice.process, alice.executing, alice.frozen) == (process, True, None)


def test_the_order_leaves_the_driver_until_the_interrupt_is_due() -> None:
    stage = a_long_cell()
    stage.node.now = 10.0
    stage.node.fire_timer()
    freeze = stage.pending("alice")
    assert isinstance(freeze, FreezeProcess)
    assert freeze.timeout_s == pytest.approx(8.0)
    assert freeze.reason == stage.why(Reason.NEEDED, "bob", gpus=[0])


def test_the_process_is_given_its_own_gpu_back_and_no_other() -> None:
    stage = a_borrower_that_stands_still()
    stage.ends("alice")
    stage.after(60)
    assert stage.phase("bob") == "suspended"
    stage.ends_well("training")
    assert stage.runs("bob")
    assert stage.gpu("bob") == 1
    thaws = [c for _, given in stage.node.history for c in given if isinstance(c, ThawProcess)]
    assert [c.gpus for c in thaws] == [(stage.uuid(1),)]


def test_it_stands_still_for_nobody_who_has_left_and_advice_is_not_to_wait_for_them() -> None:
    stage = a_long_cell()
    stage.after(40)
    assert stage.phase("alice") == "suspended"
    stage.health(0, healthy=False)
    stage.ends("bob")
    told = explain(stage.node.state, stage.workload("alice").id, stage.node.now)
    assert stage.reason("alice").kind is Reason.STANDS_STILL
    assert stage.reason("alice").who == ()
    assert told["advice"] == []


def test_it_says_where_it_stands_for_whom_and_what_it_waits_for() -> None:
    stage = a_borrower_that_stands_still()
    reason = stage.reason("bob")
    assert (reason.kind, reason.gpus) == (Reason.STANDS_STILL, (stage.uuid(1),))
    assert [who.name for who in reason.who] == ["training"]
    assert stage.cause("bob") == "training"
    frozen = stage.workload("bob").frozen
    assert frozen is not None
    assert (frozen.since, frozen.bytes) == (pytest.approx(10.0), int(0.4 * TOTAL))


def test_above_its_request_it_waits_for_what_it_used_and_not_for_a_saved_state() -> None:
    stage = a_cell_that_stands_still()
    (waits,) = stage.reason("alice").because
    assert (waits.kind, waits.bytes[0]) == (Reason.USED_ABOVE_REQUEST, int(0.9 * TOTAL))


def test_away_from_home_it_is_owed_nothing_and_sets_nobody_a_deadline() -> None:
    stage = a_borrower_that_stands_still()
    assert not stage.workload("bob").within_request
    stage.ends_well("training")
    stage.notebook("carol", 0.9)
    stage.after(60)
    assert all(entry.deadline_at is None for entry in stage.node.state.plan.values())


def test_a_gpu_that_is_broken_is_no_place_to_stand_still() -> None:
    stage = a_stage()
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.allocates("alice", 0.4)
    stage.health(0, healthy=False)
    stage.after(19)
    assert "freeze" not in stage.orders("alice")
    assert "interrupt" in stage.orders("alice")


def test_where_freezing_fails_the_cell_is_interrupted_and_stopped_in_time() -> None:
    stage = a_long_cell()
    stage.node.deaf = True
    stage.node.now = 10.0
    stage.node.fire_timer()
    stage.completes("alice", fail=True)
    assert stage.runs("alice")
    assert stage.workload("alice").freeze_trouble == Why(Reason.SAID, text="managed memory is in use")
    stage.after(6)
    assert stage.orders("alice") == ["start", "trim", "freeze"]
    stage.after(2.5)
    assert stage.orders("alice") == ["start", "trim", "freeze", "interrupt"]
    stage.after(10)
    assert stage.orders("alice")[:5] == ["start", "trim", "freeze", "interrupt", "stop"]
    assert stage.runs("bob")


def test_a_supervisor_that_says_nothing_of_its_freeze_is_told_to_stop_at_the_deadline_and_nothing_is_killed() -> None:
    stage = a_long_cell()
    stage.node.now = 10.0
    stage.node.fire_timer()
    stage.node.now = 28.0
    stage.node.fire_timer()
    assert isinstance(stage.pending("alice"), StopProcess)
    for at in (31.0, 60.0, 200.0):
        stage.node.now = at
        stage.node.tell(ev.TimerFired(at))
        assert isinstance(stage.pending("alice"), StopProcess)
    assert stage.workload("alice").perhaps_locked
    stage.completes("alice")
    assert not stage.workload("alice").perhaps_locked
    stage.node.settle()
    assert stage.runs("bob")


def test_the_next_cell_may_be_frozen_although_the_one_before_could_not() -> None:
    stage = a_long_cell()
    stage.node.now = 10.0
    stage.node.fire_timer()
    stage.completes("alice", fail=True)
    stage.node.finish_cell(stage.workload("alice").id)
    stage.node.start_cell(stage.workload("alice").id)
    assert stage.workload("alice").freeze_trouble is None


@pytest.mark.parametrize("refusal", ["the driver is older than 570", None])
def test_only_a_process_that_its_supervisor_found_fit_is_frozen(refusal: str | None) -> None:
    stage = a_stage()
    stage.notebook("alice")
    stage.node.tell(ev.FreezeTested(stage.node.now, stage.workload("alice").id, refusal))
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob")
    stage.after(17)
    assert ("freeze" in stage.orders("alice")) == (refusal is None)


def test_a_trial_that_is_told_again_makes_nobody_try_again_in_the_same_cell() -> None:
    stage = a_long_cell()
    stage.node.now = 10.0
    stage.node.fire_timer()
    stage.completes("alice", fail=True)
    stage.node.tell(ev.FreezeTested(stage.node.now, stage.workload("alice").id, None))
    assert stage.workload("alice").freeze_trouble is not None
    assert stage.orders("alice").count("freeze") == 1


@pytest.mark.parametrize("policy", [{"freeze_cells": False}, {"pools": (Pool("p", ("0",), freeze_cells=False),)}])
def test_where_the_policy_does_not_want_it_the_ladder_is_as_it_was(policy: dict[str, object]) -> None:
    stage = a_stage(**policy)
    pools = ("p",) if "pools" in policy else ("default",)
    stage.notebook("alice", pools=pools)
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob", pools=pools)
    stage.after(19)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "suspend"]


def test_an_idle_notebook_is_suspended_and_never_frozen() -> None:
    stage = a_stage()
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.notebook("bob")
    assert "freeze" not in stage.orders("alice")


def test_a_cell_is_never_frozen_for_a_burst() -> None:
    stage = a_stage()
    stage.notebook("bob", 0.4)
    stage.holds("bob", 0.8)
    stage.user_suspends("bob")
    stage.notebook("alice", 0.4)
    stage.holds("alice", 0.8)
    stage.cell_starts("alice")
    stage.cell_starts("bob")
    stage.after(1000)
    assert stage.phase("bob") == "suspended"
    assert "freeze" not in stage.orders("alice")


def test_one_that_is_released_goes_on_before_it_ends_and_waits_for_room_for_that() -> None:
    stage = a_cell_that_stands_still()
    stage.ends("alice")
    assert stage.known("alice")
    assert stage.phase("alice") == "suspended"
    stage.ends("bob")
    assert not stage.known("alice")
    assert stage.node.workloads["w1"].process is None  # type: ignore[index]  # an id is a string


def test_a_frozen_process_that_dies_queues_again_with_what_is_saved() -> None:
    stage = a_cell_that_stands_still()
    stage.dies("alice")
    assert stage.workload("alice").frozen is None
    assert stage.orders("alice")[-2:] == ["freeze", "start"]
    assert stage.runs("alice", "bob")


def test_a_thaw_that_fails_is_tried_again_after_a_while_and_the_process_stays() -> None:
    stage = a_cell_that_stands_still()
    process = stage.workload("alice").process
    stage.node.release(stage.workload("bob").id)
    stage.completes("bob")
    assert isinstance(stage.pending("alice"), ThawProcess)
    stage.completes("alice", fail=True)
    assert stage.phase("alice") == "suspended"
    assert stage.workload("alice").process == process
    stage.after(29)
    assert stage.orders("alice").count("thaw") == 1
    stage.after(2)
    assert stage.orders("alice").count("thaw") == 2
    assert stage.runs("alice")


def test_a_cell_that_goes_on_may_have_to_stand_still_again() -> None:
    stage = a_cell_that_stands_still()
    stage.ends("bob")
    stage.notebook("carol")
    stage.cell_starts("carol")
    stage.after(11)
    assert [order for order in stage.orders("alice") if order != "trim"] == ["start", "freeze", "thaw", "freeze"]
    assert stage.runs("carol")


def test_what_has_come_back_with_it_is_counted_before_a_sample_shows_it() -> None:
    stage = a_stage()
    stage.node.deaf = True
    for name in ("alice", "bob"):
        stage.notebook(name, 0.125)
        stage.cell_starts(name)
        if name == "alice":
            stage.allocates(name, 1.0)
    stage.after(15)
    assert (stage.phase("alice"), stage.phase("bob")) == ("suspended", "running")
    bob = stage.workload("bob").id
    stage.node.finish_cell(bob)
    while stage.pending("alice") is None:
        stage.completes("bob")
    stage.node.start_cell(bob)
    thaw = stage.pending("alice")
    assert isinstance(thaw, ThawProcess)
    stage.node.complete(thaw)
    assert stage.workload("alice").size_bytes == TOTAL
    assert not isinstance(stage.pending("bob"), StartProcess)


def test_its_user_can_neither_suspend_nor_migrate_it_meanwhile() -> None:
    stage = a_borrower_that_stands_still()
    stage.user_suspends("bob")
    stage.user_migrates("bob", 0)
    stage.ends_well("training")
    assert stage.runs("bob")
    assert stage.gpu("bob") == 1


# Host memory


def two_borrowers(host: float) -> Stage:
    """alice and bob compute with 0.4 each on GPUs that they borrow; two commands of others come to be at home there."""
    stage = a_stage(3)
    stage.node.host_bytes = int(host * TOTAL)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, 0.3)
        stage.cell_starts(name)
        stage.allocates(name, 0.4)
    stage.command("training")
    stage.command("tuning")
    assert {stage.home(name)[0] for name in ("alice", "bob", "carol")} == {stage.gpu("carol")}
    return stage


def test_each_of_two_that_are_frozen_at_once_has_to_fit_beside_the_other() -> None:
    stage = two_borrowers(host=0.7)
    stage.node.now = 10.0
    stage.node.fire_timer()
    freezes = [stage.pending(name) for name in ("alice", "bob")]
    assert all(isinstance(freeze, FreezeProcess) for freeze in freezes)
    beside = sorted(freeze.beside_bytes for freeze in freezes if isinstance(freeze, FreezeProcess))
    assert beside == [0, int(0.4 * TOTAL)]
    stage.node.settle()
    assert [stage.workload(name).frozen is not None for name in ("alice", "bob")].count(True) == 1
    stage.after(20)
    assert stage.runs("training", "tuning")


def test_two_for_which_host_memory_has_room_stand_still_both() -> None:
    stage = two_borrowers(host=0.9)
    stage.after(11)
    assert all(stage.workload(name).frozen is not None for name in ("alice", "bob"))


# Restarts in the middle


def restarts(stage: Stage) -> None:
    stage.node.go_down()
    stage.node.come_back()
    for name in sorted(stage.node.unreported):
        stage.node.report(name)


def test_a_cell_stands_still_through_a_restart() -> None:
    stage = a_cell_that_stands_still()
    restarts(stage)
    stage.after(10)
    assert stage.phase("alice") == "suspended"
    stage.ends("bob")
    assert stage.runs("alice")


@pytest.mark.parametrize("fail", [False, True])
def test_a_freeze_that_ends_while_the_daemon_is_away_is_known_by_the_report(fail: bool) -> None:
    stage = a_long_cell()
    stage.node.now = 10.0
    stage.node.fire_timer()
    stage.node.go_down()
    stage.node.complete(stage.pending("alice"), fail=fail)  # type: ignore[arg-type]
    stage.node.come_back()
    stage.node.report(stage.workload("alice").id)
    assert (stage.workload("alice").frozen is None) == fail
    assert stage.phase("alice") == ("running" if fail else "suspended")


@pytest.mark.parametrize("fail", [False, True])
def test_a_thaw_that_ends_while_the_daemon_is_away_is_known_by_the_report(fail: bool) -> None:
    stage = a_cell_that_stands_still()
    stage.node.release(stage.workload("bob").id)
    stage.completes("bob")
    stage.node.go_down()
    stage.node.complete(stage.pending("alice"), fail=fail)  # type: ignore[arg-type]
    stage.node.come_back()
    stage.node.report(stage.workload("alice").id)
    assert stage.phase("alice") == ("suspended" if fail else "running")
    stage.after(60)
    assert stage.runs("alice")


def test_an_order_that_was_not_carried_out_is_there_again_after_a_restart() -> None:
    stage = a_long_cell()
    stage.node.now = 10.0
    stage.node.fire_timer()
    restarts(stage)
    pending = stage.workload("alice").pending
    assert pending is not None
    assert pending.order is Order.FREEZE
    stage.node.settle()
    stage.after(5)
    assert stage.phase("alice") == "suspended"
    assert stage.runs("bob")


def test_a_freeze_that_a_journal_lost_is_known_by_the_report() -> None:
    stage = a_long_cell()
    process = stage.node.workloads[stage.workload("alice").id].process
    assert process is not None
    process.frozen = True
    restarts(stage)
    assert stage.phase("alice") == "suspended"
    assert stage.workload("alice").frozen is not None


def test_a_thaw_that_a_journal_lost_is_known_by_the_report() -> None:
    stage = a_cell_that_stands_still()
    before = stage.node.state
    stage.ends("bob")
    assert stage.runs("alice")
    bob = next(key for key, w in before.workloads.items() if w.spec.name == "bob")
    stage.node.state = replace(before, workloads={k: w for k, w in before.workloads.items() if k != bob}, plan={})
    restarts(stage)
    assert stage.runs("alice")
    assert stage.workload("alice").frozen is None


def test_a_daemon_that_forgot_everything_is_told_of_a_cell_that_stands_still() -> None:
    stage = a_borrower_that_stands_still()
    bob, process = stage.workload("bob").id, stage.workload("bob").process
    stage.node.go_down()
    stage.node.come_back_forgetful()
    for name in list(stage.node.workloads):
        assert stage.node.bring_back(name)
    workload = stage.node.of_workload(bob)
    assert (workload.process, workload.phase) == (process, Phase.SUSPENDED)
    stage.after(10)
    stage.ends_well("training")
    assert stage.node.where(bob) == "running on 1"


def test_one_that_lost_its_home_to_another_queue_while_it_stood_still_says_so_for_as_long() -> None:
    stage = a_stage(queues=(Queue("a", quota={"default": 0.5}), Queue("b", quota={"default": 0.5})))
    stage.notebook("alice", 1.0, 1.0, queue="a")
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob", 0.5, 0.5, queue="b")
    stage.cell_starts("bob")
    stage.after(25)
    assert (stage.home("alice"), stage.orders("alice")[-1]) == ([], "freeze")
    assert stage.runs("bob")
    told = stage.reason("alice")
    assert told.kind is Reason.STANDS_STILL
    stage.cell_ends("bob")
    stage.after(5)
    assert stage.reason("alice") == told


def test_a_cell_that_began_while_its_process_was_to_be_suspended_stands_still_as_any_other() -> None:
    stage = a_stage()
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.node.submit(name="bob", request_bytes=TOTAL // 2, limit_bytes=TOTAL)
    while isinstance(stage.pending("alice"), TrimMemory):
        stage.completes("alice")
    assert isinstance(stage.pending("alice"), SuspendProcess)
    stage.node.now += 11.0
    stage.node.start_cell(stage.workload("alice").id)
    stage.completes("alice")
    assert isinstance(stage.pending("alice"), FreezeProcess)
