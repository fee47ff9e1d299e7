"""The daemon was away: nobody is hurried for that, and nobody is ordered about before it is known how they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StartProcess, SuspendProcess
from nls_scheduler.core.model.ids import CommandId, WorkloadId
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Order
from nls_scheduler.core.step import step
from stage import TOTAL, Stage
from told import Told

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState


def orders_given(stage: Stage) -> int:
    return sum(len([c for c in given if type(c).__name__ != "SetTimer"]) for _, given in stage.node.history)


def test_a_deadline_that_passed_while_the_daemon_was_away_begins_again_with_the_grace() -> None:
    stage = Stage(1, suspend_timeout_s=20.0)
    stage.notebook("alice")
    alice = stage.workload("alice").id
    stage.node.tell(ev.SuspendRequested(stage.node.now, alice, "suspended by its user"))
    stage.node.go_down()
    stage.node.now = 100.0
    stage.node.come_back()
    stage.node.report(alice)
    assert isinstance(stage.pending("alice"), SuspendProcess)
    assert stage.orders("alice") == ["start", "suspend"]
    stage.node.now += 4.0
    stage.completes("alice")
    assert stage.phase("alice") == "suspended"
    assert stage.orders("alice") == ["start", "suspend"]


@pytest.mark.parametrize("gone_s", [7.0, 30.0])
def test_a_cell_that_was_to_be_interrupted_while_the_daemon_was_away_is_interrupted_and_has_its_time(
    gone_s: float,
) -> None:
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0, reconnect_grace_s=3.0)
    stage.node.deaf = True
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.cell_starts("alice")
    stage.command("bob", request=0.5)
    stage.node.advance(14.0)
    stage.node.go_down()
    stage.node.now += gone_s
    stage.node.come_back()
    for name in ("alice", "bob"):
        stage.node.report(stage.workload(name).id)
    stage.node.advance(12.5)
    assert stage.orders("alice") == ["start", "trim", "interrupt"]
    assert stage.phase("alice") == "running"
    stage.node.advance(1.0)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "stop"]
    assert stage.phase("bob") == "running"


def test_who_has_to_leave_while_no_orders_are_given_yet_has_its_time_from_then() -> None:
    stage = Stage(1, reclaim_deadline_s=5.0, stop_grace_s=2.0, interrupt_grace_s=10.0, reconnect_grace_s=3.0)
    stage.node.deaf = True
    stage.notebook("alice", 0.5)
    stage.notebook("carol", 0.05)
    stage.holds("alice", 0.9)
    stage.cell_starts("alice")
    stage.node.go_down()
    stage.node.come_back()
    stage.node.report(stage.workload("alice").id)
    stage.notebook("bob", 0.4)
    stage.node.advance(5.4)
    assert stage.orders("alice") == ["start", "trim", "interrupt"]
    stage.node.advance(0.2)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "stop"]


def test_after_a_journal_that_lost_its_end_orders_go_on_after_the_last_one_that_anybody_has_got() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    before = stage.node.state
    for _ in range(3):
        stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
        stage.node.settle()
        stage.node.tell(ev.ResumeRequested(stage.node.now, stage.workload("alice").id))
        stage.node.settle()
    newest = stage.node.state.next_command
    stage.node.state = before
    alice = stage.workload("alice")
    reported = ev.WorkloadReported(
        stage.node.now, alice.id, CommandId(newest - 1), alice.process, True, False, None, CommandId(newest - 1)
    )
    state, _ = step(before, reported)
    assert state.next_command == newest


def test_whatever_one_supervisor_says_orders_to_others_can_be_answered() -> None:
    stage = Stage(2)
    stage.notebook("alice", 0.5)
    stage.notebook("bob", 0.5)
    for said in (2**62 - 1, 2**63 - 1, 2**63 - 1):
        bob = stage.workload("bob")
        reported = ev.WorkloadReported(
            stage.node.now, bob.id, CommandId(said), bob.process, True, False, None, CommandId(said)
        )
        stage.node.tell(reported)
        stage.node.settle()
        stage.user_suspends("alice")
        assert stage.phase("alice") == "suspended"
        stage.user_resumes("alice")
        assert stage.runs("alice")
        assert stage.node.state.next_command < 2**62 + 100 < 2**63, "the wire has room for as many again"


def test_a_start_that_was_answered_before_the_journal_lost_its_end_is_over() -> None:
    stage = Stage(1)
    stage._ids["alice"] = stage.node.submit(name="alice")
    assert isinstance(stage.pending("alice"), StartProcess)
    alice = stage.workload("alice")
    newest = CommandId(alice.pending.command_id + 40)
    reported = ev.WorkloadReported(
        stage.node.now, alice.id, newest, None, ready=False, executing=True, saved_bytes=None, received=newest
    )
    state, commands = step(stage.node.state, reported)
    (again,) = (command for command in commands if isinstance(command, StartProcess))
    assert again.command_id > newest
    assert state.workloads[alice.id].pending.command_id == again.command_id


def waiting_for_memory() -> Stage:
    """`next` may start as soon as the process before is seen to be gone; that happens while the daemon is away."""
    stage = Stage(1)
    stage.command("holder")
    stage.command("next")
    process = stage.lingers("holder")
    stage.ends("holder")
    stage.node.go_down()
    process.lingers = False
    stage.node.come_back()
    return stage


def test_nothing_is_ordered_before_all_have_reported() -> None:
    stage = waiting_for_memory()
    given = orders_given(stage)
    assert stage.phase("next") == "queued"
    stage.node.sample()
    assert orders_given(stage) == given
    stage.node.report(stage.workload("next").id)
    assert stage.phase("next") == "starting"


def test_when_the_grace_is_over_orders_are_given_whoever_has_not_reported() -> None:
    stage = waiting_for_memory()
    stage.node.now = stage.node.state.quiet_until - 0.1
    stage.node.sample()
    assert stage.phase("next") == "queued"
    assert stage.node.state.timer_at == stage.node.state.quiet_until
    stage.node.fire_timer()
    assert stage.phase("next") == "starting"


def test_a_lost_journal_disturbs_nobody_for_the_grace() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.node.go_down()
    stage.node.come_back_forgetful()
    stage._ids["bob"] = stage.node.submit(name="bob")
    assert stage.phase("bob") == "queued"
    alice = stage._ids["alice"]
    assert stage.node.bring_back(alice)
    stage.node.sample()
    gpu = stage.node.state.gpus[stage.uuid(0)]
    assert (gpu.unplaced, gpu.unplaced_bytes) == ((), 0)
    stage.after(stage.node.state.policy.reconnect_grace_s)
    assert stage.runs("alice", "bob")


def test_who_waits_for_a_lost_journal_waits_as_much_longer_as_the_daemon_stood_still() -> None:
    stage = Stage(1)
    stage.node.go_down()
    stage.node.come_back_forgetful()
    stage.node.submit(name="bob")
    until = stage.node.state.quiet_until
    stage.node.now += 1.0
    stage.node.tell(ev.DaemonStoodStill(stage.node.now, 1.0))
    assert stage.node.state.timer_at == until + 1.0


def test_who_is_brought_back_is_no_stranger_any_more_and_ids_of_orders_go_on() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.user_suspends("alice")
    stage.user_resumes("alice")
    last = stage.node.workloads[stage.workload("alice").id].last_command
    stage.node.go_down()
    stage.node.come_back_forgetful()
    stage.node.sample()
    gpu = stage.node.state.gpus[stage.uuid(0)]
    assert (gpu.unplaced != (), gpu.confirmed, gpu.confirmed_bytes) == (True, True, gpu.unplaced_bytes)
    assert stage.node.bring_back(stage._ids["alice"])
    gpu = stage.node.state.gpus[stage.uuid(0)]
    assert (gpu.unplaced, gpu.confirmed, gpu.confirmed_bytes) == ((), False, 0)
    assert stage.node.state.next_command == last + 1


def test_who_was_told_to_leave_before_it_was_brought_back_has_left_for_a_reason() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    alice = stage.workload("alice").id
    stage.node.tell(ev.SuspendRequested(stage.node.now, alice, "suspended by its user"))
    order = stage.pending("alice")
    assert order is not None
    stage.node.come_back_forgetful()
    stage.node.bring_back(alice)
    stage.node.tell(ev.ProcessSuspended(stage.node.now, alice, order.command_id, TOTAL // 4))
    left = stage.workload("alice").departure
    assert left is not None
    assert left.order.reason == Why(Reason.ADOPTED)


@pytest.mark.parametrize("kind", ["notebook", "command"])
def test_who_is_new_to_a_daemon_that_lost_its_journal_waits_for_who_runs(kind: str) -> None:
    stage = Stage(1)
    (stage.notebook if kind == "notebook" else stage.command)("alice", 0.75)
    stage.node.go_down()
    stage.node.come_back_forgetful()
    stage._ids["bob"] = stage.node.submit(name="bob", priority=90)
    entry = stage.node.state.plan[stage._ids["bob"]]
    assert (entry.home, entry.position, entry.reason) == ((), 1, Why(Reason.JOURNAL_LOST, numbers=(3.0,)))
    assert stage.node.bring_back(stage._ids["alice"])
    stage.after(stage.node.state.policy.reconnect_grace_s)
    assert stage.node.state.plan[stage._ids["bob"]].reason.kind is Reason.NO_ROOM
    assert stage.runs("alice")


def test_who_runs_where_a_stranger_came_meanwhile_has_its_home_elsewhere_at_once() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.node.go_down()
    stage.node.strangers[stage.workload("alice").current[0]] = TOTAL * 3 // 4
    stage.node.come_back_forgetful()
    stage.node.sample()
    assert stage.node.bring_back(stage._ids["alice"])
    assert stage.workload("alice").home != stage.workload("alice").current


@pytest.mark.parametrize("kind", ["notebook", "command"])
def test_who_would_cost_somebody_a_guarantee_is_not_brought_back(kind: str) -> None:
    stage = Stage(1)
    (stage.notebook if kind == "notebook" else stage.command)("alice", 0.75)
    stage.node.go_down()
    stage.node.come_back_forgetful()
    stage.node.processes[0].held_bytes = 1
    stage._ids["bob"] = stage.node.submit(name="bob")
    stage.after(stage.node.state.policy.reconnect_grace_s)
    assert stage.node.state.workloads[stage._ids["bob"]].home
    assert not stage.node.bring_back(stage._ids["alice"])


def test_what_was_carried_out_while_the_daemon_was_away_has_been_carried_out() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.25)
    stage.cell_starts("alice")
    stage.cell_ends("alice")
    alice = stage.workload("alice").id
    stage.node.tell(ev.SuspendRequested(stage.node.now, alice, "suspended by its user"))
    stage.node.go_down()
    stage.completes("alice")
    stage.node.come_back()
    stage.node.report(alice)
    assert stage.phase("alice") == "suspended"
    assert (stage.workload("alice").failures, stage.workload("alice").saved_bytes) == (0, TOTAL // 4)


def test_who_computed_while_the_daemon_was_away_is_idle_since_then_and_not_since_the_cell_before() -> None:
    stage = Stage(1, idle_suspend_s=600.0)
    stage.notebook("alice")
    alice = stage.workload("alice").id
    stage.after(5)
    stage.cell_starts("alice")
    stage.after(1000)
    stage.node.go_down()
    stage.node.finish_cell(alice)
    stage.node.come_back()
    stage.node.report(alice)
    stage.after(599)
    assert stage.runs("alice")
    stage.after(1)
    assert stage.phase("alice") == "suspended"


def test_a_suspend_that_waits_for_the_end_of_a_cell_is_not_lost_where_its_supervisor_reports_meanwhile() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.user_suspends("alice")
    stage.node.report(stage.workload("alice").id)
    assert stage.runs("alice")
    stage.cell_ends("alice")
    assert stage.phase("alice") == "suspended"


def test_a_cell_that_began_to_wait_while_the_daemon_was_away_wants_the_gpu_only_until_it_is_given_up() -> None:
    stage = Stage(1)
    for name in ("alice", "bob"):
        stage.notebook(name)
    stage.user_suspends("alice")
    alice = stage.workload("alice").id
    stage.node.go_down()
    stage.node.start_cell(alice)
    stage.node.come_back()
    stage.node.report(alice)
    assert stage.workload("alice").wants_gpu
    stage.node.finish_cell(alice)
    stage.node.settle()
    assert stage.phase("alice") == "suspended"


def test_a_start_that_was_carried_out_while_the_daemon_was_away_is_not_given_up() -> None:
    stage = Stage(1)
    stage._ids["alice"] = stage.node.submit(name="alice")
    alice = stage._ids["alice"]
    pending = stage.workload("alice").pending
    assert pending is not None
    assert pending.order is Order.START
    stage.node.go_down()
    stage.completes("alice")
    stage.node.come_back()
    stage.node.report(alice)
    assert stage.runs("alice")
    assert stage.orders("alice") == ["start"]


def behind(stage: Stage, known: NodeState, first: WorkloadId | None = None) -> None:
    """The daemon is killed, and its journal ends with `known`; everybody reports at once, `first` before the others."""
    stage.node.go_down()
    stage.node.come_back_behind(known)
    for workload in sorted(stage.node.unreported, key=lambda key: (key != first, key)):
        stage.node.report(workload)
    stage.node.sample()
    stage.node.settle()


def test_who_has_moved_since_the_journal_lost_its_end_is_where_its_supervisor_says_and_goes_on() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.holds("alice", 0.4)
    known = stage.node.state
    stage.user_migrates("alice", 1)
    process = stage.workload("alice").process
    stage.cell_starts("alice")
    given = orders_given(stage)
    behind(stage, known)
    assert stage.gpu("alice") == 1
    assert stage.workload("alice").process == process
    assert stage.workload("alice").executing
    assert not stage.node.state.gpus[stage.uuid(1)].unplaced
    assert orders_given(stage) == given
    stage.after(60)
    assert list(stage.node.state.usable) == [stage.uuid(0), stage.uuid(1)]
    stage.command("whole")
    assert stage.gpu("whole") == 0


def test_one_that_cannot_move_is_at_home_where_it_runs_since_the_journal_lost_its_end() -> None:
    stage = Stage(2)
    stage.gang("red", 1)
    known = stage.node.state
    stage.health(0, healthy=False)
    stage.dies("red-0")
    stage.after(40)
    stage.health(0, healthy=True)
    assert stage.gpu("red-0") == 1
    behind(stage, known)
    assert stage.home("red-0") == [1]
    stage.command("whole")
    assert stage.gpu("whole") == 0
    assert stage.runs("red-0", "whole")


def test_who_came_to_where_another_was_before_the_journal_lost_its_end_sends_nobody_back() -> None:
    stage = Stage(2)
    stage.notebook("alice", 1.0)
    known = stage.node.state
    stage.user_migrates("alice", 1)
    stage.notebook("bob", 1.0)
    for name in ("alice", "bob"):
        stage.cell_starts(name)
    given = orders_given(stage)
    stage.node.go_down()
    stage.node.come_back_behind(known)
    stage.node.report(WorkloadId("w1"))
    assert stage.node.bring_back(WorkloadId("w2"))
    stage.node.sample()
    stage.after(120)
    assert [stage.home(name) for name in ("alice", "bob")] == [[1], [0]]
    assert orders_given(stage) == given


@pytest.mark.parametrize("first", ["alice", "bob"])
def test_who_took_anothers_place_since_the_journal_lost_its_end_keeps_it_whoever_reports_first(first: str) -> None:
    stage = Stage(3)
    stage.notebook("alice", 1.0)
    stage.notebook("bob", 1.0)
    known = stage.node.state
    stage.user_migrates("alice", 2)
    stage.user_migrates("bob", 0)
    for name in ("alice", "bob"):
        stage.cell_starts(name)
    given = orders_given(stage)
    behind(stage, known, stage.workload(first).id)
    stage.after(120)
    assert [stage.home(name) for name in ("alice", "bob")] == [[2], [0]]
    assert orders_given(stage) == given


def test_who_cannot_move_and_has_not_reported_is_at_home_before_those_that_came_since() -> None:
    stage = Stage(1, oversubscribe=2.0)
    stage.command("firm", 0.5)
    stage.node.go_down()
    stage.node.come_back()
    for name in ("one", "two"):
        stage._ids[name] = stage.node.submit(name=name)
    names = ("firm", "one", "two")
    assert [stage.home(name) for name in names] == [[0], [0], [0]]
    stage.node.tell(ev.PolicyChanged(stage.node.now, replace(stage.node.state.policy, oversubscribe=1.0)))
    assert [stage.home(name) for name in names] == [[0], [0], []]


def test_who_has_started_since_the_journal_lost_its_end_runs() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.4)
    stage.user_suspends("alice")
    known = stage.node.state
    stage.cell_starts("alice")
    process = stage.workload("alice").process
    assert process is not None
    behind(stage, known)
    assert stage.runs("alice")
    assert stage.workload("alice").process == process


@pytest.mark.parametrize("starts", [False, True])
def test_whom_its_user_resumed_since_the_journal_lost_its_end_stays(starts: bool) -> None:
    """It was suspended once more, as its user had asked for before."""
    stage = Stage(2)
    stage.notebook("alice")
    stage.holds("alice", 0.4)
    stage.user_suspends("alice")
    known = stage.node.state
    stage.node.tell(ev.ResumeRequested(stage.node.now, stage.workload("alice").id))
    if not starts:
        stage.node.settle()
    behind(stage, known)
    stage.after(60)
    assert stage.runs("alice")
    assert stage.orders("alice") == ["start", "suspend", "start"]


def test_whom_its_user_suspended_and_who_has_not_gone_yet_goes_though_the_journal_lost_its_end() -> None:
    stage = Stage(1, suspend_timeout_s=20.0)
    stage.notebook("alice")
    stage.holds("alice", 0.4)
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
    known = stage.node.state
    stage.node.complete(stage.node.pending[0], fail=True)
    behind(stage, known)
    stage.after(60)
    assert stage.phase("alice") == "suspended"


def test_a_start_that_the_journal_lost_is_answered_as_if_it_had_not() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.user_suspends("alice")
    known = stage.node.state
    stage.node.start_cell(stage.workload("alice").id)
    started = stage.pending("alice")
    assert isinstance(started, StartProcess)
    stage.node.go_down()
    stage.node.come_back_behind(known)
    stage.node.report(stage.workload("alice").id)
    assert stage.phase("alice") == "starting"
    assert stage.workload("alice").current == started.gpus
    stage.node.complete(started)
    assert stage.runs("alice")
    assert stage.orders("alice").count("start") == 2


def test_a_suspend_that_the_journal_lost_is_answered_as_if_it_had_not() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.4)
    known = stage.node.state
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
    suspends = stage.pending("alice")
    stage.node.go_down()
    stage.node.come_back_behind(known)
    stage.node.report(stage.workload("alice").id)
    assert stage.phase("alice") == "suspending"
    stage.node.complete(suspends)
    stage.node.settle()
    assert stage.workload("alice").saved_bytes


def test_who_came_and_is_on_its_way_out_since_the_journal_lost_its_end_is_told_to_have_come() -> None:
    """Of a process that goes nobody had read that it had come, and its way to another Gpu was no move."""
    told = Told(1)
    told.stage._ids["alice"] = alice = told.stage.node.submit(name="alice")

    def comes_and_goes() -> None:
        told.stage.completes("alice")
        told.stage.node.tell(ev.SuspendRequested(told.stage.node.now, alice, "suspended by its user"))

    told.lost(comes_and_goes)
    assert told.events == [("started", None, "GPU 0"), ("suspended", "GPU 0", None), ("resumed", None, "GPU 0")]


@pytest.mark.parametrize("moved", [False, True])
def test_who_came_or_went_elsewhere_since_the_journal_lost_its_end_is_told_to_have_been_found_there(
    moved: bool,
) -> None:
    """The way there is lost; the history had nothing of it, and of the next way a part or all, by chance."""
    told = Told(2)
    told.stage.notebook("alice")
    if not moved:
        told.stage.user_suspends("alice")

    def goes_on() -> None:
        if moved:
            told.stage.user_migrates("alice", 1)
        told.stage.cell_starts("alice")

    told.lost(goes_on)
    is_on = f"GPU {told.stage.gpu('alice')}"
    assert told.events == [("adopted", None, is_on)]
    told.stage.cell_ends("alice")
    told.stage.user_migrates("alice", 0 if moved else 1)
    assert told.events[1:] == [("moved", is_on, "GPU 0" if moved else "GPU 1")]


def test_a_suspend_of_which_the_journal_lost_the_order_is_not_told_with_the_reason_of_another_order() -> None:
    """Why it was sent is not known any more; once it was given up, it was told with what the start had been for."""
    told = Told(1, suspend_timeout_s=0.5)
    told.stage._ids["alice"] = alice = told.stage.node.submit(name="alice")

    def comes_and_is_to_go() -> None:
        told.stage.completes("alice")
        told.stage.node.tell(ev.SuspendRequested(told.stage.node.now, alice, "suspended by its user"))

    told.lost(comes_and_is_to_go)
    assert [entry["event"] for entry in told.entries] == ["started", "suspend_failed", "suspended", "resumed"]
    started, _, suspended, _ = told.entries
    assert suspended["reason"] not in ("", started["reason"])


def test_who_came_back_to_the_same_gpu_since_the_journal_lost_its_end_is_told_to_have_been_found_there() -> None:
    """By what a journal knew, it runs there still, which is another process by now."""
    told = Told(1)
    told.stage.notebook("alice")

    def goes_and_comes_back() -> None:
        told.stage.dies("alice")
        told.stage.cell_starts("alice")
        told.stage.after(1)

    told.lost(goes_and_comes_back)
    assert told.events == [("adopted", None, "GPU 0")]


def test_what_a_process_holds_is_known_also_when_it_is_on_its_way_out_since_the_journal_lost_its_end() -> None:
    """Until the next sample its memory counted as free: another one was started on a full GPU."""
    stage = Stage(1)
    stage.notebook("alice", 0.4)
    stage.holds("alice", 0.9)
    known, alice = stage.node.state, stage.workload("alice").id
    held = stage.workload("alice").held_bytes
    stage.node.tell(ev.SuspendRequested(stage.node.now, alice, "suspended by its user"))
    stage.node.go_down()
    stage.node.come_back_behind(known)
    stage.node.report(alice)
    assert stage.phase("alice") == "suspending"
    assert stage.workload("alice").held_bytes == held > 0


@pytest.mark.parametrize("priority", [50, 100])
def test_who_was_admitted_since_the_journal_lost_its_end_has_its_home_whatever_its_queue_may_have_by_now(
    priority: int,
) -> None:
    """The queue had no limit then, nor a quota."""
    stage = Stage(1)
    stage.notebook("alice", 1.0)
    stage.command("bob", 0.5, priority=priority)
    known = stage.node.state
    stage.ends("alice")
    assert stage.home("bob") == [0]
    stage.changes(queues=(Queue("default", quota={"*": 0.0}, limit={"*": 0.0}),))
    stage.node.go_down()
    stage.node.come_back_behind(known)
    stage.node.report(stage.workload("bob").id)
    assert stage.home("bob") == [0]
    assert stage.runs("bob")


def test_homes_of_those_that_have_not_reported_since_the_journal_lost_its_end_may_be_others_by_now() -> None:
    stage = Stage(3)
    stage.gang("red", 2)
    known = stage.node.state
    assert [stage.home(name) for name in ("red-0", "red-1")] == [[0], [1]]
    stage.health(0, healthy=False)
    stage.dies("red-0")
    stage.after(40)
    assert [stage.gpu(name) for name in ("red-0", "red-1")] == [1, 2]
    stage.node.go_down()
    stage.node.come_back_behind(known)
    stage.node.report(stage.workload("red-0").id)
    assert [stage.home(name) for name in ("red-0", "red-1")] == [[1], [1]]
    stage.node.report(stage.workload("red-1").id)
    assert [stage.home(name) for name in ("red-0", "red-1")] == [[1], [2]]
