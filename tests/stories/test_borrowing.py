"""Who borrows drives nobody out and waits for nobody's cell; only who is owed room at home sets a deadline."""

from __future__ import annotations

from nls_scheduler.core.model.queues import Queue
from stage import TOTAL, Stage


def with_a_cell(gpus: int, **policy: object) -> Stage:
    """xenia has all of GPU 0, and her cell ends in its own time."""
    stage = Stage(gpus, **policy)
    stage.node.deaf = True
    stage.notebook("xenia", 1.0)
    stage.holds("xenia", 0.9)
    stage.cell_starts("xenia")
    stage.after(10)
    return stage


def goes_on(stage: Stage, name: str) -> bool:
    """Whether its cell is left alone for as long as a deadline takes."""
    stage.after(120)
    return stage.runs(name) and stage.orders(name) == ["start"]


def test_a_cell_after_which_its_user_wants_no_gpu_is_not_stopped_for_who_would_borrow_its_gpu() -> None:
    stage = with_a_cell(2)
    stage.user_suspends("xenia")
    stage.notebook("other")
    stage.notebook("bob")
    assert stage.gpu("bob") == 1, "there is room at home"
    assert goes_on(stage, "xenia")


def test_nobody_moves_for_burst_to_where_a_cell_still_runs() -> None:
    stage = with_a_cell(2)
    stage.notebook("other")
    stage.notebook("bob")
    assert (stage.gpu("other"), stage.gpu("bob")) == (1, 1)
    stage.user_suspends("xenia")
    stage.after(120)
    assert stage.orders("other") == stage.orders("bob") == ["start"]
    stage.cell_ends("xenia")
    stage.after(120)
    assert {stage.gpu("other"), stage.gpu("bob")} == {0, 1}


def test_a_cell_after_which_its_user_wants_another_gpu_is_not_stopped_for_who_would_borrow_its_gpu() -> None:
    stage = with_a_cell(3)
    stage.user_migrates("xenia", 1)
    stage.command("yan", 0.5)
    stage.notebook("bob", 0.25)
    assert stage.gpu("bob") == 2
    assert goes_on(stage, "xenia")


def test_a_guest_is_not_driven_out_for_who_would_borrow_its_gpu() -> None:
    queues = (Queue("a", quota={"default": 1.0}), Queue("b", quota={"default": 2.0}))
    stage = Stage(3, queues=queues)
    stage.node.deaf = True
    stage.command("yan", 0.625, queue="b")
    for name in ("anna", "amy"):
        stage.notebook(name, 1.0, queue="a")
        stage.holds(name, 0.9)
        stage.cell_starts(name)
    stage.after(5)
    stage.notebook("ben", 0.5, 0.5, queue="b")
    stage.user_suspends("ben")
    guest = next(name for name in ("anna", "amy") if not stage.workload(name).home)
    stage.after(20)
    stage.notebook("bea", 0.25, queue="b")
    assert stage.gpu("bea") == stage.gpu("yan")
    assert goes_on(stage, guest)


def test_a_cell_is_not_stopped_for_the_burst_of_one_that_spans_several_gpus() -> None:
    stage = Stage(2)
    stage.node.deaf = True
    stage.notebook("two", 0.25, gpu_count=2)
    stage.holds("two", 0.625)
    stage.user_suspends("two")
    stage.notebook("alice", 0.5, 0.5)
    stage.cell_starts("alice")
    stage.user_suspends("alice")
    stage.user_resumes("two")
    assert not stage.workload("two").within_request
    assert goes_on(stage, "alice")


def test_a_cell_is_not_stopped_for_who_brings_a_little_more_than_a_request_that_is_its_limit() -> None:
    stage = Stage(1)
    stage.node.deaf = True
    stage.notebook("alice", 0.5, 0.5)
    stage.holds("alice", 0.52)
    stage.user_suspends("alice")
    stage.notebook("bob", 0.25)
    stage.cell_starts("bob")
    stage.node.workloads[stage.workload("bob").id].process.held_bytes = int(0.48 * TOTAL)
    stage.node.sample()
    stage.cell_starts("alice")
    assert not stage.workload("alice").within_request
    stage.after(120)
    assert stage.runs("bob")
    assert "interrupt" not in stage.orders("bob")


def test_who_has_room_at_home_does_not_wait_for_a_gpu_that_is_still_being_left() -> None:
    stage = Stage(2)
    stage.notebook("xenia", 1.0)
    stage.holds("xenia", 0.9)
    stage.node.release(stage.workload("xenia").id)
    for name in ("bob", "cat"):
        stage.node.submit(name=name, request_bytes=TOTAL // 2, limit_bytes=TOTAL)
    for command in [c for c in stage.node.pending if c.workload != stage.workload("xenia").id]:
        stage.node.complete(command)
    assert [w.current for w in stage.node.state.workloads.values() if w.spec.name != "xenia"] == 2 * [(stage.uuid(1),)]
