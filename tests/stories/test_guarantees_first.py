from __future__ import annotations

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.ids import CommandId
from nls_scheduler.core.model.reasons import Reason
from stage import TOTAL, Stage


def test_a_stuck_gpu_is_nobodys_new_home() -> None:
    stage = Stage(2, stop_timeout_s=10.0)
    stage.command("stuck")
    process = stage.lingers("stuck")
    stage.ends("stuck")
    stage.after(11)
    stage.command("next")
    assert (stage.phase("next"), stage.gpu("next")) == ("running", 1)
    stage.command("later")
    stage.after(60)
    assert stage.phase("later") == "queued"
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.gpu("later") == 0


def test_a_guarantee_that_waited_goes_before_somebody_s_burst() -> None:
    """alice is stopped for bob's guarantee, and then gets the Gpu again before bob, with 0.9 of it."""
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.cell_starts("alice")
    stage.node.deaf = True
    stage.notebook("bob")
    stage.after(29)
    assert stage.runs("bob")
    assert stage.orders("alice") == ["start", "trim", "interrupt", "stop"]
    assert sum(p.held_bytes for p in stage.node.processes if p.alive) <= TOTAL


def test_who_was_stopped_for_a_guarantee_does_not_come_back_into_its_room() -> None:
    """One that is idle is to make room for the rest, and does not answer: until it has gone there is room for one."""
    stage = Stage(1, reclaim_deadline_s=3.0, stop_grace_s=0.5)
    for name in ("idle", "other", "bursts"):
        stage.notebook(name, 1 / 16)
    stage.holds("bursts", 14 / 16)
    stage.cell_starts("bursts")
    stage.node.deaf = True
    stage.command("owner", 1 / 16)
    for _ in range(3):
        stage.node.fire_timer()
    stage.completes("bursts")
    stage.node.sample()
    assert stage.orders("owner") == ["start"]
    assert stage.phase("bursts") == "suspended"
    assert stage.reason("bursts") == stage.why(Reason.HELD, "idle", gpus=[0])


def test_what_came_back_counts_in_full_before_it_is_sampled() -> None:
    """A process that is ready and was not sampled yet counts with what it brought back, and not with its request."""
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.holds("alice", 0.9)
    stage.user_suspends("alice")
    stage.node.tell(ev.ResumeRequested(stage.node.now, stage.workload("alice").id))
    (start,) = stage.node.pending
    stage.node.complete(start)
    assert (stage.phase("alice"), stage.workload("alice").memory_used) == ("running", {})
    stage._ids["bob"] = stage.node.submit(name="bob", request_bytes=TOTAL // 2, limit_bytes=TOTAL // 2)
    assert (stage.home("bob"), stage.phase("bob")) == ([0], "queued")
    assert stage.reason("alice") == stage.why(Reason.NEEDED, "bob", gpus=[0])
    stage.node.settle()
    assert stage.runs("bob")


def test_the_reason_names_who_needed_the_room_although_it_came_before_the_sample() -> None:
    """alice allocates, bob starts before the next sample, alice is driven out: "what is guaranteed there" is nobody."""
    stage = Stage(1)
    stage.notebook("alice")
    stage.node.workloads[stage.workload("alice").id].process.held_bytes = int(0.9 * TOTAL)
    stage._ids["bob"] = stage.node.submit(name="bob")
    stage.completes("bob")
    assert stage.reason("alice") == stage.why(Reason.NEEDED, "bob", gpus=[0])


def test_a_late_exit_of_the_process_before_is_not_taken_for_the_new_one_s() -> None:
    """ProcessExited(old process) while STARTING with process None counts as a failed start."""
    stage = Stage(1)
    stage.notebook("alice")
    old = stage.workload("alice").process
    stage.user_suspends("alice")
    stage.node.start_cell(stage.workload("alice").id)
    assert stage.phase("alice") == "starting"
    stage.node.tell(ev.ProcessExited(stage.node.now, stage.workload("alice").id, old, "suspended"))
    assert (stage.phase("alice"), stage.workload("alice").failures) == ("starting", 0)


def test_a_late_start_failed_of_an_earlier_order_changes_nothing() -> None:
    stage = Stage(1)
    stage.node.submit(name="alice")
    (alice,) = stage.node.state.workloads
    stage._ids["alice"] = alice
    stage.completes("alice", fail=True)
    assert stage.phase("alice") == "starting"
    stage.node.tell(ev.StartFailed(stage.node.now, alice, CommandId(1), "told twice"))
    assert (stage.phase("alice"), stage.workload("alice").failures) == ("starting", 1)


def test_a_late_ready_of_an_earlier_start_is_not_taken_for_the_new_one_s() -> None:
    stage = Stage(1)
    stage._ids["alice"] = alice = stage.node.submit(name="alice")
    stage.completes("alice", fail=True)
    assert stage.phase("alice") == "starting"
    stage.node.tell(ev.ProcessReady(stage.node.now, alice, CommandId(1)))
    assert stage.phase("alice") == "starting"


def test_a_suspend_that_failed_too_late_does_not_take_the_stop_back_that_followed_it() -> None:
    stage = Stage(1, reclaim_deadline_s=10.0)
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    alice = stage.workload("alice").id
    stage.node.tell(ev.SuspendRequested(stage.node.now, alice, "suspended by its user"))
    suspend = stage.workload("alice").pending
    assert suspend is not None
    stage.node.submit(name="bob")
    stage.node.tell(ev.TimerFired(stage.node.now + 10.0))
    stop = stage.workload("alice").pending
    assert stop is not None
    assert (suspend.order.value, stop.order.value) == ("suspend", "stop")
    stage.node.tell(ev.SuspendFailed(stage.node.now, alice, suspend.command_id, "it took too long"))
    assert (stage.phase("alice"), stage.workload("alice").pending) == ("suspending", stop)


def test_a_stop_that_found_no_process_does_not_end_the_start_after_it_when_it_is_told_twice() -> None:
    stage = Stage(1)
    stage._ids["alice"] = alice = stage.node.submit(name="alice")
    stage.node.tell(ev.SuspendRequested(stage.node.now, alice, "suspended by its user"))
    stage.completes("alice")
    assert stage.phase("alice") == "queued"
    stage.node.start_cell(alice)
    assert stage.phase("alice") == "starting"
    stage.node.tell(ev.ProcessExited(stage.node.now, alice, None, "told twice"))
    assert (stage.phase("alice"), stage.workload("alice").failures) == ("starting", 0)
    stage.node.settle()
    assert stage.runs("alice")


def test_nobody_leaves_one_gpu_for_room_that_who_has_to_leave_another_makes_there() -> None:
    """`wide` is in the way of `owner` on GPU 1, and with it gone `job` is in nobody's on GPU 0, where `guest` goes."""
    stage = Stage(2)
    stage.command("firm", 0.5)
    stage.command("wide", 0.125, 0.7, gpu_count=2)
    stage.command("big", 0.625)
    stage.command("early", 0.25)
    stage.command("job", 0.1875, 0.6, requeue=True)
    stage.ends("early")
    stage.notebook("guest", 0.1875, 0.4)
    stage.holds("wide", 0.16)
    stage.holds("job", 0.27)
    assert (stage.home("guest"), stage.gpu("guest")) == ([0], 1)
    stage.command("owner", 0.25)
    assert stage.plan("wide").target == ()
    stage.after(60.0)
    assert stage.runs("owner", "guest", "job")
    assert stage.orders("job") == ["start"]
