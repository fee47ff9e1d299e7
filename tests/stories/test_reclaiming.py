from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import InterruptCell, StopProcess, SuspendProcess, TrimMemory
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.reasons import Reason, said
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB
from stage import Stage

ORDER_OF_HARM = {
    "an idle notebook goes before one that executes": (
        {"share": 0.45, "executing": True},
        {"share": 0.45},
        "second",
    ),
    "the lower priority goes first": (
        {"share": 0.45, "priority": 1},
        {"share": 0.45},
        "second",
    ),
    "the higher priority stays, whoever holds more": (
        {"share": 0.5, "priority": 1},
        {"share": 0.4},
        "second",
    ),
    "the largest over-request goes first": (
        {"share": 0.3},
        {"share": 0.55},
        "second",
    ),
    "the one that has been idle longest goes among equals": (
        {"share": 0.45},
        {"share": 0.45},
        "first",
    ),
}


@pytest.mark.parametrize(("first", "second", "victim"), ORDER_OF_HARM.values(), ids=ORDER_OF_HARM)
def test_who_yields_first(first: dict[str, float], second: dict[str, float], victim: str) -> None:
    stage = Stage(1)
    for name, facts in (("first", first), ("second", second)):
        stage.notebook(name, 0.2, 1.0, priority=int(facts.get("priority", 0)))
    for name, facts in (("first", first), ("second", second)):
        stage.holds(name, facts["share"])
        if facts.get("executing"):
            stage.cell_starts(name)
    stage.after(10)
    stage.node.submit(name="third", request_bytes=int(0.4 * 16 * GIB), limit_bytes=int(0.4 * 16 * GIB))
    stage.trims()
    suspended = [name for name in ("first", "second") if isinstance(stage.pending(name), SuspendProcess)]
    assert suspended == [victim]


@pytest.mark.parametrize(("busy_later", "victim"), [("first", "second"), ("second", "first")])
def test_of_two_alike_the_one_that_has_been_idle_longest_goes(busy_later: str, victim: str) -> None:
    stage = Stage(1)
    for name in ("first", "second"):
        stage.notebook(name, 0.2)
        stage.holds(name, 0.45)
    stage.after(10)
    stage.cell_starts(busy_later)
    stage.cell_ends(busy_later)
    stage.holds(busy_later, 0.45)
    stage.after(10)
    stage.notebook("third", 0.4)
    assert stage.runs("third", busy_later)
    assert stage.phase(victim) == "suspended"


def a_long_cell_above_its_request(**policy: float) -> Stage:
    """alice computes with 0.9 of the only Gpu, of which 0.5 is guaranteed to her; bob has come for his 0.5."""
    stage = Stage(1, **policy)
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob")
    assert stage.phase("bob") == "queued"
    assert stage.reason("alice") == stage.why(Reason.NEEDED, "bob", gpus=[0])
    return stage


def test_a_running_cell_is_interrupted_before_the_deadline_and_what_it_saves_then_is_kept() -> None:
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.after(17)
    assert stage.orders("alice") == ["start", "trim"]
    stage.after(2)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "suspend"]
    assert stage.runs("bob")


def test_a_running_cell_that_goes_on_all_the_same_is_stopped_at_the_deadline() -> None:
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.node.deaf = True
    stage.after(27)
    assert stage.runs("alice")
    assert stage.orders("alice") == ["start", "trim", "interrupt"]
    stage.after(2)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "stop"]
    assert stage.runs("bob")


@pytest.mark.parametrize(("told_s", "left_s"), [(15.0, 10.0), (19.0, 9.0)])
def test_a_deadline_that_new_rules_shorten_leaves_a_running_cell_its_last_rungs(told_s: float, left_s: float) -> None:
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.node.deaf = True
    stage.after(told_s)
    stage.node.tell(ev.PolicyChanged(stage.node.now, replace(stage.node.state.policy, reclaim_deadline_s=20.0)))
    assert stage.orders("alice") == ["start", "trim", "interrupt"]
    stage.after(left_s - 0.5)
    assert stage.runs("alice")
    stage.after(1.0)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "stop"]
    assert stage.runs("bob")


@pytest.mark.parametrize("told_s", [5.0, 19.0])
def test_a_daemon_that_stood_still_past_the_deadline_interrupts_before_it_stops(told_s: float) -> None:
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.node.deaf = True
    stage.after(told_s)
    stage.node.now += 40.0
    stage.node.tell(ev.DaemonStoodStill(stage.node.now, 40.0))
    stage.after(9.0)
    assert stage.orders("alice")[:3] == ["start", "trim", "interrupt"]
    assert ("stop" in stage.orders("alice")) is (told_s > 18.0), "who was interrupted before has had its time"
    stage.after(2.0)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "stop"]
    assert stage.runs("bob")


@pytest.mark.parametrize("late_s", [0.3, 11.0, 100.0])
def test_a_cell_whose_interrupt_comes_late_has_its_time_from_then_on(late_s: float) -> None:
    """Whatever the reason, and although nobody says that anything was late."""
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.node.deaf = True
    stage.after(17.0)
    stage.node.now += 1.0 + late_s
    stage.node.sample()
    interrupt = next(c for c in stage.node.pending if isinstance(c, InterruptCell))
    assert interrupt.grace_s == pytest.approx(10.0)
    stage.after(9.5)
    assert stage.orders("alice") == ["start", "trim", "interrupt"]
    stage.after(1.0)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "stop"]
    assert stage.runs("bob")


@pytest.mark.parametrize("what", ["new rules", "stands still"])
def test_while_nobody_can_be_interrupted_no_time_to_do_so_runs_out(what: str) -> None:
    """After a restart it is quiet until all have reported: for longer than new rules leave, or than it stood still."""
    policy = {"reclaim_deadline_s": 30.0, "stop_grace_s": 2.0, "interrupt_grace_s": 10.0, "reconnect_grace_s": 30.0}
    stage = a_long_cell_above_its_request(**policy)
    stage.node.deaf = True
    stage.after(5.0)
    stage.node.tell(ev.DaemonRestarted(stage.node.now, forgetful=False))
    stage.after(1.0)
    if what == "new rules":
        stage.node.tell(ev.PolicyChanged(stage.node.now, replace(stage.node.state.policy, reclaim_deadline_s=15.0)))
    else:
        stage.node.now += 20.0
        stage.node.tell(ev.DaemonStoodStill(stage.node.now, 20.0))
    stage.after(36.0)
    assert stage.orders("alice") == ["start", "trim", "interrupt"]
    stage.after(20.0)
    assert stage.orders("alice")[:4] == ["start", "trim", "interrupt", "stop"]
    assert stage.runs("bob")


def test_a_short_deadline_leaves_half_of_it_to_the_cell() -> None:
    stage = a_long_cell_above_its_request(reclaim_deadline_s=3.0, stop_grace_s=0.5, interrupt_grace_s=10.0)
    stage.after(0.9)
    assert stage.orders("alice") == ["start", "trim"]
    stage.after(0.2)
    assert stage.orders("alice")[:3] == ["start", "trim", "interrupt"]


def test_the_interrupt_tells_how_long_is_left_and_why() -> None:
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.node.now = 18.0
    stage.node.fire_timer()
    interrupt = stage.pending("alice")
    assert isinstance(interrupt, InterruptCell)
    assert interrupt.grace_s == pytest.approx(10.0)
    assert interrupt.reason == stage.why(Reason.NEEDED, "bob", gpus=[0])


def test_a_cell_is_interrupted_once_and_the_next_one_anew() -> None:
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.node.deaf = True
    stage.after(20)
    stage.after(5)
    assert stage.orders("alice").count("interrupt") == 1
    stage.node.finish_cell(stage.workload("alice").id)
    assert stage.workload("alice").interrupt is None


def test_a_cell_after_one_of_whose_end_nobody_heard_has_its_own_time() -> None:
    """As after a restart of the daemon, while the notebook went on."""
    stage = a_long_cell_above_its_request(reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.node.deaf = True
    stage.after(20)
    stage.node.tell(ev.CellStarted(stage.node.now, stage.workload("alice").id))
    stage.after(9.5)
    assert stage.orders("alice") == ["start", "trim", "interrupt", "interrupt"]
    stage.after(1)
    assert stage.orders("alice")[:5] == ["start", "trim", "interrupt", "interrupt", "stop"]
    assert stage.runs("bob")


def test_a_cell_that_ends_in_time_loses_nothing() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.cell_starts("alice")
    stage.notebook("bob")
    stage.after(10)
    stage.cell_ends("alice")
    assert stage.orders("alice") == ["start", "trim", "suspend"]
    assert stage.runs("bob")


def test_a_workload_within_its_request_is_never_a_victim() -> None:
    stage = Stage(1)
    stage.notebook("within", 0.5)
    stage.holds("within", 0.5)
    stage.notebook("above", 0.25)
    stage.holds("above", 0.5)
    stage.notebook("third", 0.25)
    assert stage.runs("within", "third")
    assert stage.orders("within") == ["start"]
    assert stage.phase("above") == "suspended"


def test_who_is_above_its_request_goes_at_the_deadline_though_another_within_its_own_is_idle() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    stage.notebook("within", 0.25)
    stage.holds("within", 0.2)
    stage.notebook("above", 0.25)
    stage.cell_starts("above")
    stage.allocates("above", 0.5)
    stage.command("third", 0.3)
    assert stage.plan("within").target == stage.workload("within").current
    assert stage.reason("above") == stage.why(Reason.NEEDED, "third", gpus=[0])
    stage.after(29)
    assert stage.runs("within", "third")
    assert stage.orders("within") == ["start"]
    assert not stage.runs("above")


def owner_away() -> Stage:
    """Three quarters of GPU 0 are promised to an owner who is away, the rest to one who stays away; two borrow it."""
    stage = Stage(2)
    for name, request in (("owner", 0.75), ("other", 0.25)):
        stage.notebook(name, request, request)
        stage.user_suspends(name)
    for name in "abcd":
        stage.notebook(name, 0.25)
    assert [stage.home(name) for name in "abcd"] == [[1]] * 4
    assert [stage.gpu(name) for name in "abcd"] == [1, 0, 1, 0]
    return stage


@pytest.mark.parametrize(("computes", "goes"), [("b", "d"), ("d", "b")])
def test_when_an_owner_comes_back_the_idle_borrower_goes_home_and_the_one_that_computes_stays(
    computes: str, goes: str
) -> None:
    stage = owner_away()
    stage.cell_starts(computes)
    stage.cell_starts("owner")
    assert stage.runs("owner")
    assert (stage.gpu("owner"), stage.gpu(computes), stage.gpu(goes)) == (0, 0, 1)
    assert stage.orders(computes) == ["start"]


def test_who_holds_too_much_beside_an_owner_that_comes_back_goes_where_there_is_room_for_it() -> None:
    """The owner's home was given by the cluster: it can be nowhere else."""
    stage = Stage(2)
    stage.notebook("owner", 0.5, 0.5, given_home=(stage.uuid(0),))
    stage.user_suspends("owner")
    stage.command("blocker")
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.ends("blocker")
    assert (stage.home("owner"), stage.gpu("alice")) == ([0], 0)
    stage.cell_starts("owner")
    assert stage.runs("owner", "alice")
    assert (stage.gpu("owner"), stage.gpu("alice")) == (0, 1)


def test_an_owner_that_comes_back_is_at_home_where_nobody_has_to_go_for_it() -> None:
    """GPU 1 is empty: `alice`, whose cell runs, borrows GPU 0, and is at home there from now on."""
    stage = Stage(2)
    stage.notebook("owner", 1.0, 1.0)
    stage.user_suspends("owner")
    stage.command("blocker", 0.75)
    stage.notebook("alice", 0.25, 1.0)
    stage.cell_starts("alice")
    stage.ends("blocker")
    assert (stage.home("owner"), stage.home("alice"), stage.gpu("alice")) == ([0], [1], 0)
    stage.cell_starts("owner")
    assert (stage.gpu("owner"), stage.gpu("alice"), stage.home("alice")) == (1, 0, [0])
    assert stage.orders("alice") == ["start"]


def test_an_owner_that_comes_back_has_another_home_where_there_is_room() -> None:
    stage = Stage(2)
    stage.notebook("owner", 0.5, 0.5)
    stage.user_suspends("owner")
    stage.command("blocker")
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.holds("alice", 0.9)
    stage.ends("blocker")
    assert (stage.home("owner"), stage.gpu("alice")) == ([0], 0)
    stage.cell_starts("owner")
    assert (stage.home("owner"), stage.gpu("owner")) == ([1], 1)
    assert stage.orders("alice") == ["start"]


def test_who_makes_room_for_one_that_is_driven_home_has_no_longer_than_that_one_has() -> None:
    """The owner of GPU 0 is back: alice has to go home to GPU 1, where bob computes with more than his request."""
    stage = Stage(2, reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    stage.notebook("owner", 1.0, 1.0)
    stage.user_suspends("owner")
    for name in ("bob", "alice"):
        stage.notebook(name)
        stage.cell_starts(name)
    assert (stage.home("alice"), stage.gpu("alice"), stage.gpu("bob")) == ([1], 0, 1)
    stage.allocates("bob", 0.9)
    stage.after(100)
    stage.cell_starts("owner")
    back_at = stage.node.now
    stage.after(10)
    assert stage.cause("alice") == "owner"
    assert stage.cause("bob") == "alice"
    assert stage.plan("alice").deadline_at == stage.plan("bob").deadline_at == back_at + 28
    stage.after(9)
    assert stage.runs("owner", "alice")


def test_who_waits_for_another_gpu_sets_no_deadline_on_one_where_it_has_room_already() -> None:
    """A command needs half of GPU 0 and 1, and only bob is in its way; alice is to leave because her user wishes it."""
    stage = Stage(3, pools=(Pool("alices", ("2",)),), reclaim_deadline_s=30.0, stop_grace_s=2.0)
    for name, pools in (("alice", ("default", "alices")), ("bob", ("default",))):
        stage.notebook(name, pools=pools)
        stage.cell_starts(name)
    stage.allocates("bob", 0.9)
    stage.command("double", 0.5, gpu_count=2)
    stage.user_migrates("alice", 2)
    assert (stage.gpu("alice"), stage.gpu("bob"), stage.phase("double")) == (0, 1, "queued")
    assert stage.reason("alice") == stage.why(Reason.WISHED, gpus=[2])
    assert (stage.plan("alice").deadline_at, stage.plan("bob").deadline_at) == (None, 28.0)
    stage.after(60)
    assert stage.runs("double")
    assert stage.orders("alice") == ["start"]
    stage.cell_ends("alice")
    assert stage.gpu("alice") == 2


def test_a_guaranteed_workload_is_there_within_the_deadline_though_nobody_answers() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    bob = stage.node.submit(name="bob")
    assert isinstance(stage.pending("alice"), TrimMemory)
    stage.node.fire_timer()
    assert isinstance(stage.pending("alice"), SuspendProcess)
    while stage.node.now < 28:
        stage.node.fire_timer()
    assert isinstance(stage.pending("alice"), StopProcess)
    stage.completes("alice")
    stage.node.settle()
    assert stage.node.where(bob) == "running on 0"


def test_a_command_that_can_start_again_is_stopped_at_once_and_queues_again() -> None:
    stage = Stage(1)
    stage.command("batch", 0.25, 1.0, requeue=True)
    stage.holds("batch", 0.9)
    stage.command("owner", 0.75)
    assert stage.orders("batch") == ["start", "stop"]
    assert stage.runs("owner")
    stage.ends("owner")
    assert stage.runs("batch")


def test_who_is_stopped_as_its_suspend_took_too_long_reads_for_what_it_was_suspended() -> None:
    """By then the plan says of it why it is to wait, or where it is to come back."""
    stage = Stage(1, reclaim_deadline_s=30.0)
    stage.notebook("alice", 0.25)
    stage.holds("alice", 0.7)
    stage.node.submit(name="training", request_bytes=8 * GIB, limit_bytes=8 * GIB, kind=Kind.COMMAND)
    while not isinstance(stage.pending("alice"), SuspendProcess):
        stage.node.fire_timer()
    suspended_for = stage.workload("alice").last_reason
    assert suspended_for.kind is Reason.NEEDED
    stage.node.start_cell(stage.workload("alice").id)
    stage.node.tell(ev.StateSaved(stage.node.now, stage.workload("alice").id, 11 * GIB))
    while isinstance(stage.pending("alice"), SuspendProcess):
        stage.node.fire_timer()
    stop = stage.pending("alice")
    assert isinstance(stop, StopProcess)
    assert stage.plan("alice").reason != suspended_for
    assert stop.reason == suspended_for


def test_a_command_that_is_stopped_has_the_time_until_the_deadline_to_end() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    stage.command("batch", 0.25, 1.0, requeue=True)
    stage.holds("batch", 0.9)
    stage._ids["owner"] = stage.node.submit(name="owner", request_bytes=12 * GIB, limit_bytes=12 * GIB)
    stop = stage.pending("batch")
    assert isinstance(stop, StopProcess)
    assert stop.grace_s == 28.0


def test_a_borrower_that_computes_leaves_a_stranger_s_gpu_by_the_deadline() -> None:
    stage = Stage(2, reclaim_deadline_s=30.0)
    stage.notebook("alice")
    stage.notebook("bob")
    stage.cell_starts("bob")
    stage.stranger_uses(1, 0.1)
    assert stage.gpu("bob") == 1
    stage.after(31)
    assert stage.gpu("bob") == 0


def test_a_command_that_cannot_start_again_is_the_last_to_go() -> None:
    stage = Stage(1)
    stage.command("once", 0.25, 1.0)
    stage.holds("once", 0.35)
    stage.notebook("book", 0.25)
    stage.holds("book", 0.4)
    stage.command("owner", 0.4)
    assert stage.orders("once") == ["start"]
    assert stage.phase("book") == "suspended"


def test_what_a_command_borrows_beyond_its_request_can_cost_it_its_life_at_the_deadline_only() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    stage.command("once", 0.25, 1.0)
    stage.holds("once", 0.9)
    stage.notebook("owner", 0.5)
    stage.after(27)
    assert stage.runs("once")
    stage.after(2)
    assert not stage.known("once")
    assert stage.runs("owner")


def test_a_notebook_whose_suspend_fails_keeps_its_gpu_until_the_deadline() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    stage.notebook("alice")
    stage.allocates("alice", 0.9)
    stage.node.submit(name="bob")
    stage.trims()
    stage.completes("alice", fail=True)
    assert stage.runs("alice")
    stage.after(27)
    assert stage.orders("alice") == ["start", "trim", "suspend"]
    stage.after(2)
    assert stage.orders("alice")[3] == "stop"


def test_a_user_who_asks_again_after_a_failed_suspend_does_not_wait_for_a_cool_down() -> None:
    stage = Stage(1)
    stage.notebook("book")
    asked = ev.SuspendRequested(stage.node.now, stage.workload("book").id, "suspended by its user")
    stage.node.tell(asked)
    stage.completes("book", fail=True)
    assert stage.pending("book") is None
    stage.node.tell(asked)
    assert isinstance(stage.pending("book"), SuspendProcess)


def test_a_burst_is_not_tried_again_right_after_a_failed_suspend() -> None:
    stage = Stage(2, cool_down_s=30.0)
    stage.notebook("alice")
    stage.notebook("bob")
    stage.command("training")
    stage.node.release(stage.workload("training").id)
    stage.completes("training")
    moving = next(name for name in ("alice", "bob") if stage.pending(name) is not None)
    stage.completes(moving, fail=True)
    assert stage.pending(moving) is None
    before = len(stage.orders(moving))
    stage.after(29)
    assert len(stage.orders(moving)) == before


@pytest.mark.parametrize(("how", "says"), [("dies", "killed by SIGKILL"), ("start fails", "no memory for the context")])
def test_three_failures_in_a_row_end_in_failed_and_a_resume_tries_again(how: str, says: str) -> None:
    stage = Stage(1, max_failures=3)
    book = stage.node.submit(name="book")
    stage._ids["book"] = book
    for _ in range(3):
        if how == "start fails":
            stage.completes("book", fail=True)
        else:
            stage.node.settle()
            stage.node.kill(book)
    assert stage.phase("book") == "failed"
    assert stage.reason("book") == stage.why(Reason.GAVE_UP, numbers=[3], because=[said(says)])
    stage.node.settle()
    stage.command("next")
    assert stage.runs("next"), "what has failed keeps no room"
    stage.ends("next")
    stage.user_resumes("book")
    assert stage.runs("book")


def test_a_resume_gives_as_many_tries_as_the_first_time() -> None:
    stage = Stage(1, max_failures=3)
    stage.notebook("book")
    for _ in range(3):
        stage.dies("book")
    assert stage.phase("book") == "failed"
    stage.user_resumes("book")
    for _ in range(2):
        stage.dies("book")
        assert stage.runs("book")
    stage.dies("book")
    assert stage.phase("book") == "failed"


def test_a_finished_cell_forgives_the_failures_before() -> None:
    stage = Stage(1, max_failures=3)
    stage.notebook("book")
    for _ in range(5):
        stage.dies("book")
        stage.cell_starts("book")
        stage.cell_ends("book")
    assert stage.runs("book")


def test_a_wait_without_a_home_does_not_count_against_whoever_is_in_the_way_then() -> None:
    stage = Stage(2, reclaim_deadline_s=30.0)
    stage.notebook("borrower", 0.5)
    stage.notebook("owner", 1.0)
    assert stage.gpu("borrower") != stage.gpu("owner")
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("owner").id, "by its user"))
    stage.node.settle()
    stage.notebook("second", 0.5)
    stage.after(100)
    stage.command("training", 1.0)
    stage.after(600)
    assert stage.workload("training").home == ()
    for name in ("borrower", "second"):
        stage.cell_starts(name)
    told = stage.node.now
    stage.node.release(stage.workload("owner").id)
    deadlines = [entry.deadline_at for entry in stage.node.state.plan.values() if entry.deadline_at is not None]
    assert deadlines == [told + 28.0]
    assert not any(isinstance(command, StopProcess) for command in stage.node.history[-1][1])


def test_of_several_gpus_all_are_named_that_are_not_free_yet() -> None:
    stage = Stage(2)
    stage.command("first", gpu_count=2)
    stage.node.release(stage.workload("first").id)
    fields = {"request_bytes": 16 * GIB, "limit_bytes": 16 * GIB, "gpu_count": 2}
    second = stage.node.submit(name="second", kind=Kind.COMMAND, **fields)
    assert stage.node.state.plan[second].reason == stage.why(Reason.HELD, "first", gpus=[0, 1])


def test_of_several_gpus_the_one_is_named_that_is_not_free_yet() -> None:
    stage = Stage(2)
    stage.command("first")
    stage.node.release(stage.workload("first").id)
    fields = {"request_bytes": 16 * GIB, "limit_bytes": 16 * GIB, "gpu_count": 2}
    second = stage.node.submit(name="second", kind=Kind.COMMAND, **fields)
    assert stage.node.state.plan[second].reason == stage.why(Reason.HELD, "first", gpus=[0])


def test_who_fits_beside_the_newcomer_stays_although_it_would_be_the_first_to_go() -> None:
    stage = Stage(2)
    for name, request in (("alice", 0.25), ("bob", 0.25), ("carol", 0.5)):
        stage.notebook(name, request, given_home=(stage.uuid(0),))
    stage.user_migrates("carol", 1)
    assert (stage.gpu("alice"), stage.gpu("bob"), stage.gpu("carol")) == (1, 0, 1)
    stage.cell_starts("carol")
    ordered = stage.orders("alice")
    stage.command("training", request=0.75, given_home=(stage.uuid(1),))
    # With carol gone there is room for both: alice, who is idle and the first to go, need not.
    stage.cell_ends("carol")
    assert (stage.gpu("alice"), stage.gpu("carol"), stage.gpu("training")) == (1, 0, 1)
    assert stage.orders("alice") == ordered
