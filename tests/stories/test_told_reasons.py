"""What users read: whose Gpu it is, who needs it, and what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_turns import rivals

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import SuspendProcess
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.pools import Placement, Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason
from stage import TOTAL, Stage, with_one_small_gpu


def grows(stage: Stage, name: str, request: float, limit: float) -> None:
    """Its user asks for more; nothing is carried out yet."""
    workload = stage.workload(name)
    spec = replace(workload.spec, request_bytes=int(request * TOTAL), limit_bytes=int(limit * TOTAL))
    stage.node.workloads[workload.id].spec = spec
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, workload.id, spec))


def test_who_leaves_a_borrowed_gpu_for_a_process_that_nobody_placed_reads_that() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    assert (stage.gpu("bob"), stage.home("bob")) == (1, [0])
    stage.cell_starts("bob")
    stage.stranger_uses(1, 0.125)
    assert stage.plan("bob").deadline_at is not None
    assert stage.reason("bob") == stage.why(Reason.HELD, gpus=[1], shares=[0.125])


@pytest.mark.parametrize("kind", ["notebook", "command", "elastic"])
def test_who_has_to_leave_as_another_at_home_there_asks_for_more_reads_who_holds_it(kind: str) -> None:
    stage = Stage(2)
    stage.notebook("alice", 0.25, 0.25)
    if kind == "notebook":
        stage.notebook("bob", 0.5, 0.5)
        stage.cell_starts("bob")
    else:
        stage.command("bob", 0.5, requeue=True, gpu_count_max=2 if kind == "elastic" else None)
    assert 0 in stage.gpus("bob")
    grows(stage, "alice", 1.0, 1.0)
    held = stage.why(Reason.HELD, "alice", gpus=[0])
    assert (stage.workload("bob").last_reason if kind != "notebook" else stage.reason("bob")) == held
    assert stage.home("bob") == [1]


def test_who_goes_for_one_of_a_gang_reads_which_of_it_needs_its_gpu() -> None:
    stage = Stage(3)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, 0.25)
    stage.gang("red", 1, size=2, request=0.875)
    told = len(stage.node.history)
    stage.command("red-1", 0.875, gang="red", gang_size=2)
    at = {stage.uuid(stage.gpu(name)): stage.workload(name).mention for name in ("red-0", "red-1")}
    orders = [c for _, given in stage.node.history[told:] for c in given if isinstance(c, SuspendProcess)]
    assert len(orders) == 2
    assert all(at[order.reason.gpus[0]] == order.reason.who[0] for order in orders)
    assert len({order.reason.who for order in orders}) == 2


def test_a_gang_of_which_all_have_come_while_one_is_on_its_way_out_waits_for_nobody_more() -> None:
    stage = Stage(2)
    stage.gang("red", 2)
    stage.node.release(stage.workload("red-1").id)
    stage.node.tell(ev.WorkloadSubmitted(stage.node.now, WorkloadId("new"), stage.workload("red-0").spec))
    assert stage.phase("red-1") == "suspending"
    assert stage.node.state.plan[WorkloadId("new")].reason == stage.why(Reason.GANG_STARTS_AGAIN, names=["red"])


def test_who_waits_reads_also_which_gpu_is_kept_by_a_process_that_does_not_end() -> None:
    stage = Stage(2, stop_timeout_s=10.0)
    stage.command("stuck")
    stage.lingers("stuck")
    stage.ends("stuck")
    stage.command("train")
    stage.after(20)
    stage.command("late")
    held, out = stage.why(Reason.HELD, "train", gpus=[1]), stage.why(Reason.OUT_OF_SERVICE, gpus=[0])
    assert stage.reason("late") == stage.no_room(1.0, out, held)


def test_who_waits_for_a_gpu_that_gives_no_answer_reads_once_a_process_on_it_does_not_end() -> None:
    stage = Stage(1, stop_timeout_s=10.0)
    stage.command("stuck")
    stage.command("train")
    stage.lingers("stuck")
    stage.node.silent.add(stage.uuid(0))
    stage.node.sample()
    stage.ends("stuck")
    assert stage.reason("train") == stage.no_room(1.0, stage.why(Reason.USE_UNTOLD, gpus=[0]))
    stage.after(20)
    assert stage.reason("train") == stage.no_room(1.0, stage.why(Reason.OUT_OF_SERVICE, gpus=[0]))


def test_what_a_queue_has_is_told_with_the_gpus_that_elastic_commands_could_give_back() -> None:
    stage = Stage(4, queues=(Queue("a", limit={"*": 2.0}),))
    stage.command("elastic", 1.0, gpu_count_max=2, requeue=True, queue="a")
    stage.command("late", 1.0, gpu_count=2, queue="a")
    limit = stage.why(Reason.QUEUE_LIMIT, names=["a", "default"], numbers=[2.0, 2.0])
    assert stage.reason("late") == stage.why(Reason.HELD_BACK, because=[limit])


def test_who_has_asked_for_more_than_is_left_beside_others_reads_who_holds_its_gpu() -> None:
    stage = Stage(2, placement=Placement.BINPACK)
    stage.command("train", 0.5)
    stage.after(5)
    stage.notebook("alice", 0.25)
    stage.cell_starts("alice")
    assert stage.gpus("alice") == stage.gpus("train") == [0]
    grows(stage, "alice", 0.75, 1.0)
    assert (stage.home("alice"), stage.plan("alice").deadline_at) == ([1], 33.0)
    assert stage.reason("alice") == stage.why(Reason.HELD, "train", gpus=[0])


def test_who_has_asked_for_more_than_its_gpu_has_reads_that_and_not_that_it_is_elsewhere() -> None:
    stage = Stage(2, with_one_small_gpu)
    stage.notebook("alice", 0.25, 0.25)
    stage.cell_starts("alice")
    assert stage.gpus("alice") == [0]
    grows(stage, "alice", 0.5, 1.0)
    assert (stage.gpus("alice"), stage.home("alice")) == ([0], [1])
    assert stage.reason("alice") == stage.why(Reason.WOULD_EXCEED, gpus=[0])
    stage.cell_ends("alice")
    assert stage.gpus("alice") == [1]


def test_who_leaves_for_one_that_has_no_home_any_more_does_not_read_that_it_needs_the_gpu() -> None:
    stage = Stage(2)
    stage.notebook("bob", 0.5, 0.5)
    stage.cell_starts("bob")
    stage.command("small", 0.5)
    stage.command("fixed", 0.375)
    stage.ends("small")
    stage.command("big", 0.75)
    assert (stage.home("bob"), stage.home("big")) == ([1], [0])
    assert stage.reason("bob") == stage.why(Reason.NEEDED, "big", gpus=[0])
    stage.changes(pools=(Pool("x", ("0",)),))
    assert stage.home("big") == []
    closed = stage.why(Reason.POOL_CLOSED, gpus=[0], names=["x"])
    assert (stage.reason("bob"), stage.cause("bob")) == (closed, None)


def test_who_runs_in_a_pool_that_is_turned_off_reads_that_it_is_off() -> None:
    stage = Stage(2, pools=(Pool("x", ("1",)),))
    stage.notebook("bob", pools=("x",))
    stage.changes(pools=(Pool("x", ("1",), enabled=False),))
    off = stage.why(Reason.POOL_OFF, names=["x"])
    assert stage.reason("bob") == stage.why(Reason.STAYS, gpus=[1], shares=[1.0], because=[off])


def test_a_gpu_of_which_the_driver_tells_nothing_for_a_moment_is_held_by_whom_it_was() -> None:
    stage = Stage(1)
    stage.command("train")
    stage.command("late")
    waits = stage.no_room(1.0, stage.why(Reason.HELD, "train", gpus=[0]))
    assert stage.reason("late") == waits
    stage.node.tell(ev.MemorySampled(stage.node.now, {}))
    assert stage.reason("late") == waits


@pytest.mark.parametrize("in_a_cell", [True, False])
def test_a_suspend_that_the_next_cell_has_overtaken_is_not_why_it_leaves_later(*, in_a_cell: bool) -> None:
    stage = rivals()
    bob = stage.workload("bob").id
    if in_a_cell:
        stage.cell_starts("bob")
    stage.node.tell(ev.SuspendRequested(stage.node.now, bob, "suspended by its user"))
    stage.cell_starts("bob")
    stage.cell_ends("bob")
    assert stage.runs("bob")
    stage.cell_starts("alice")
    stage.after(60)
    assert stage.phase("bob") == "suspended"
    assert stage.workload("bob").last_reason == stage.why(Reason.NEEDED, "alice", gpus=[0])
