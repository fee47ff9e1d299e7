"""`%gpu keep`: an idle notebook that its user holds."""

from __future__ import annotations

from dataclasses import replace

from test_turns import rivals

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import SuspendProcess
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, Why
from stage import Stage


def test_a_kept_notebook_does_not_yield_to_a_cell_that_waits_for_burst() -> None:
    stage = rivals()
    stage.user_keeps("bob", 3600)
    stage.cell_starts("alice")
    stage.after(3599)
    assert stage.runs("bob")
    assert not stage.plan("bob").yields
    assert stage.reason("alice").because == (Why(Reason.NOBODY_YIELDS),)


def test_when_the_time_is_over_it_yields_by_itself() -> None:
    stage = rivals()
    stage.user_keeps("bob", 3600)
    stage.cell_starts("alice")
    stage.after(3601)
    assert stage.runs("alice")
    assert stage.phase("bob") == "suspended"


def test_keep_off_ends_it_at_once() -> None:
    stage = rivals()
    stage.user_keeps("bob", 3600)
    stage.cell_starts("alice")
    stage.user_keeps("bob", None)
    assert stage.runs("alice")


def test_its_user_moves_a_kept_notebook_all_the_same() -> None:
    stage = Stage(2)
    stage.notebook("alice", 0.5, 0.5)
    stage.user_keeps("alice", 3600)
    stage.user_migrates("alice", 1)
    assert stage.runs("alice")
    assert stage.gpu("alice") == 1


def test_a_guarantee_takes_the_gpu_of_a_kept_notebook_as_of_any_other() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.5)
    stage.holds("alice", 0.9)
    stage.user_keeps("alice", 3600)
    stage.command("training", 0.5)
    assert stage.runs("training")
    assert stage.phase("alice") == "suspended"


def test_among_idle_notebooks_the_one_that_nobody_keeps_goes_first() -> None:
    stage = Stage(1)
    for name, share in (("kept", 0.55), ("other", 0.3)):
        stage.notebook(name, 0.2)
        stage.holds(name, share)
    stage.user_keeps("kept", 3600)
    stage.after(10)
    stage.node.submit(name="third", request_bytes=4 << 30, limit_bytes=4 << 30)
    stage.trims()
    suspended = [name for name in ("kept", "other") if isinstance(stage.pending(name), SuspendProcess)]
    assert suspended == ["other"]


def test_a_kept_notebook_is_not_moved_for_a_better_spread() -> None:
    stage = Stage(2, min_gain=0.1)
    stage.command("first", 1.0)
    for name in ("alice", "bob"):
        stage.notebook(name, 0.5)
        stage.user_keeps(name, 3600)
    stage.ends("first")
    stage.after(600)
    assert stage.gpu("alice") == stage.gpu("bob")
    stage.user_keeps("alice", None)
    stage.after(60)
    assert stage.gpu("alice") != stage.gpu("bob")


def test_its_user_may_suspend_it_all_the_same() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.user_keeps("alice", 3600)
    stage.user_suspends("alice")
    assert stage.phase("alice") == "suspended"


def test_the_end_of_a_keep_is_waited_for_with_a_timer() -> None:
    stage = Stage(2, cool_down_s=1.0)
    stage.command("blocker")
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    stage.cell_starts("alice")
    stage.user_keeps("bob", 500)
    stage.ends("blocker")
    assert stage.gpu("alice") == stage.gpu("bob")
    assert stage.node.state.timer_at == stage.node.now + 500


def test_a_kept_notebook_whose_home_another_queue_has_now_stays_while_its_memory_is_not_needed() -> None:
    """The Gpu takes one workload: its place goes to the owner, who has the memory for it beside the guest."""
    queues = (Queue("a", over_quota_weight={"default": 0.0}), Queue("b", quota={"default": 1.0}))
    stage = Stage(1, queues=queues, max_workloads_per_gpu=1)
    stage.notebook("away", 0.5, 0.5, queue="b")
    stage.user_suspends("away")
    stage.notebook("guest", 0.5, 0.5, queue="a")
    stage.user_keeps("guest", 600)
    stage.notebook("owner", 0.25, 0.25, queue="b")
    assert stage.home("guest") == []
    stage.after(599)
    assert stage.runs("owner", "guest")
    stage.after(2)
    assert stage.phase("guest") in ("queued", "suspended")


def test_who_is_to_go_home_when_it_is_kept_no_longer_is_waited_for_with_a_timer() -> None:
    """Its home is another one since it has asked for another pool."""
    stage = Stage(2, pools=(Pool("fast", ("1",)),))
    stage.node.deaf = True
    stage.notebook("gus", 0.5, 0.5)
    stage.cell_starts("gus")
    gus = stage.workload("gus")
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, gus.id, replace(gus.spec, pools=("fast",))))
    stage.user_keeps("gus", 100)
    stage.cell_ends("gus")
    assert (stage.gpu("gus"), stage.home("gus")) == (0, [1])
    stage.after(101)
    assert stage.gpu("gus") == 1
