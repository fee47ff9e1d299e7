from __future__ import annotations

from dataclasses import replace

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from stage import TOTAL, Stage, bare, with_one_small_gpu


def full_node(**policy: object) -> Stage:
    stage = Stage(1, **policy)
    stage.command("holder")
    return stage


def test_those_who_wait_go_by_priority_and_then_by_arrival() -> None:
    stage = full_node()
    stage.command("first")
    stage.after(1)
    stage.command("second")
    stage.after(1)
    stage.command("urgent", priority=5)
    assert [stage.position(name) for name in ("urgent", "first", "second")] == [1, 2, 3]
    for name in ("holder", "urgent", "first"):
        stage.ends(name)
    assert stage.runs("second")
    assert stage.position("second") is None


def test_priority_alone_stops_nobody() -> None:
    stage = full_node()
    stage.command("urgent", priority=100)
    stage.after(1000)
    assert stage.runs("holder")
    assert stage.phase("urgent") == "queued"


def test_who_waits_reads_who_holds_the_gpu() -> None:
    stage = full_node()
    stage.notebook("book")
    assert stage.reason("book") == stage.no_room(0.5, stage.why(Reason.HELD, "holder", gpus=[0]))
    assert stage.cause("book") == "holder"


def test_who_waits_for_a_place_reads_who_leaves_it_and_not_who_stays_and_holds_more() -> None:
    stage = Stage(1, queues=(Queue("a", over_quota_weight={"default": 0.0}), Queue("b", quota={"default": 1.0})))
    stage.notebook("guest", 0.4, queue="a")
    stage.cell_starts("guest")
    stage.command("large", 0.5, queue="b")
    stage.command("owner", 0.4, queue="b")
    assert stage.reason("owner") == stage.why(Reason.HELD, "guest", gpus=[0])
    assert stage.cause("owner") == "guest"


def test_a_smaller_request_passes_a_larger_one_by_until_that_starves() -> None:
    stage = Stage(1, starvation_s=300.0)
    stage.command("small-1", 0.5)
    stage.command("large", 1.0)
    stage.after(299)
    stage.command("small-2", 0.5)
    assert stage.runs("small-1", "small-2")
    stage.ends("small-1")
    stage.after(2)
    stage.command("small-3", 0.5)
    assert stage.phase("small-3") == "queued"
    assert stage.reason("small-3") == stage.why(Reason.RESERVED, "large")
    stage.ends("small-2")
    assert stage.runs("large")


def test_a_gpu_is_handed_on_only_when_the_driver_shows_its_memory_free() -> None:
    stage = full_node()
    stage.command("next")
    process = stage.lingers("holder")
    stage.ends("holder")
    assert not stage.known("holder")
    assert stage.phase("next") == "queued"
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("next")


def test_a_stranger_s_process_owns_what_it_uses() -> None:
    stage = Stage(1)
    stage.stranger_uses(0, 0.75)
    stage.notebook("book", 0.5)
    assert stage.phase("book") == "queued"
    assert stage.reason("book") == stage.no_room(0.5, stage.why(Reason.HELD, gpus=[0], shares=[0.75]))
    stage.stranger_uses(0, 0.0)
    assert stage.runs("book")


def test_who_comes_next_starts_only_beside_what_a_stranger_uses_and_what_is_on_its_way_out() -> None:
    stage = Stage(1)
    stage.stranger_uses(0, 0.3)
    stage.command("first", 0.6)
    process = stage.lingers("first")
    stage.ends("first")
    stage.command("second", 0.35)
    assert stage.phase("second") == "queued"
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("second")


def test_nobody_borrows_a_gpu_that_a_stranger_uses() -> None:
    stage = Stage(2)
    stage.stranger_uses(1, 0.6)
    stage.notebook("alice")
    stage.notebook("bob")
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)


def test_a_borrower_goes_home_when_a_stranger_comes() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    borrower = next(name for name in ("alice", "bob") if stage.gpu(name) == 1)
    stage.stranger_uses(1, 0.1)
    assert stage.gpu(borrower) == 0
    assert stage.runs("alice", "bob")


def test_an_unhealthy_gpu_is_vacated_and_used_again_when_it_is_whole() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    stage.health(1, healthy=False)
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)
    assert stage.runs("alice", "bob")
    stage.after(31)
    stage.health(1, healthy=True)
    stage.after(31)
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}


def test_the_only_gpu_out_of_service_is_the_reason_to_wait_until_it_is_whole_and_a_cell_runs() -> None:
    stage = Stage(1)
    stage.notebook("book")
    stage.health(0, healthy=False)
    assert stage.phase("book") in ("suspended", "queued")
    assert stage.reason("book") == stage.no_room(0.5, stage.why(Reason.OUT_OF_SERVICE, gpus=[0]))
    stage.health(0, healthy=True)
    stage.cell_starts("book")
    assert stage.runs("book")


def test_a_workload_that_asks_for_less_is_admitted_then() -> None:
    stage = Stage(1)
    stage.command("holder", 0.75)
    stage.notebook("book", 0.5)
    assert stage.phase("book") == "queued"
    spec = replace(stage.workload("book").spec, request_bytes=TOTAL // 4)
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, stage.workload("book").id, spec))
    stage.node.settle()
    assert stage.runs("book")


def test_who_asks_for_less_where_it_runs_reads_that_it_may_burst_there() -> None:
    stage = Stage(1)
    stage.notebook("book", request=1.0, limit=1.0)
    assert stage.reason("book") == stage.why(Reason.AT_HOME, gpus=[0], shares=[1.0])
    for request, kind, share in ((0.5, Reason.AT_HOME_WITH_BURST, 1.0), (0.75, Reason.AT_HOME_WITH_BURST, 1.0)):
        spec = replace(stage.workload("book").spec, request_bytes=int(request * TOTAL))
        stage.node.tell(ev.WorkloadRespecified(stage.node.now, stage.workload("book").id, spec))
        assert stage.reason("book") == stage.why(kind, gpus=[0], shares=[share])
    for size in (1.0, 0.5):
        spec = replace(stage.workload("book").spec, request_bytes=int(size * TOTAL), limit_bytes=int(size * TOTAL))
        stage.node.tell(ev.WorkloadRespecified(stage.node.now, stage.workload("book").id, spec))
        assert stage.reason("book") == stage.why(Reason.AT_HOME, gpus=[0], shares=[size])


def test_who_is_released_while_it_waits_is_gone_at_once() -> None:
    stage = full_node()
    stage.notebook("book")
    stage.ends("book")
    assert not stage.known("book")


def test_memory_that_is_not_free_in_time_puts_the_gpu_out_of_service_without_any_other_event() -> None:
    stage = full_node(stop_timeout_s=10.0)
    stage.lingers("holder")
    stage.ends("holder")
    assert stage.node.state.timer_at == stage.node.now + 10.0


def test_room_is_kept_only_where_the_one_that_starves_could_have_it() -> None:
    """In its own pools, and not at all for one that could not be admitted though everybody left."""
    stage = Stage(2, starvation_s=300.0, pools=(Pool("second", gpus=("1",)),))
    stage.command("holder")
    stage.command("large")
    stage.after(301)
    stage.command("other", pools=("second",))
    assert stage.runs("other")
    stage = Stage(2, starvation_s=300.0)
    stage.health(1, healthy=False)
    stage.command("both", gpu_count=2)
    stage.after(301)
    stage.command("small", 0.25)
    assert stage.runs("small")
    stage.health(1, healthy=True)
    stage.command("behind", 0.5)
    assert stage.reason("behind") == stage.why(Reason.RESERVED, "both")
    stage.ends("small")
    assert stage.runs("both")


def test_nothing_is_kept_for_a_guest_nor_for_one_that_wants_no_gpu() -> None:
    """Both have no home, and lack nothing."""
    stage = Stage(
        2, starvation_s=300.0, queues=(Queue("a", quota={"default": 1.0}), Queue("b", quota={"default": 1.0}))
    )
    stage.notebook("a1", 0.75, queue="a")
    stage.notebook("a2", 0.75, queue="a")
    stage.after(400)
    stage.cell_starts("a1")
    stage.cell_starts("a2")
    stage.command("b", 0.625, queue="b")
    stage.command("c", 0.125, queue="a")
    assert stage.runs("c")


def test_who_holds_the_gpus_is_told_by_their_numbers_and_who_came_first_before_who_cannot_move() -> None:
    stage = Stage(2, lambda gpus: gpus[::-1])
    stage.notebook("book", 0.5, 0.5)
    stage.command("job", 0.5)
    stage.command("training")
    stage.command("late")
    assert (stage.home("book"), stage.home("job"), stage.home("training")) == ([0], [0], [1])
    first, second = stage.why(Reason.HELD, "book", "job", gpus=[0]), stage.why(Reason.HELD, "training", gpus=[1])
    assert stage.reason("late") == stage.no_room(1.0, first, second)


def test_a_gpu_is_not_held_by_who_waits_for_it_as_well() -> None:
    stage = Stage(2, oversubscribe=1.5)
    stage.command("leaves", 15 / 16, gpu_count=2)
    stage.stranger_uses(1, 2 / 16)
    stage.command("elastic", 3 / 16, gpu_count=1, gpu_count_max=4, requeue=True)
    stage.command("comes", 6 / 16, gpu_count=2, gpu_count_max=5, requeue=True)
    stage.gang("red", 2, request=4 / 16, priority=1)
    stage.node.end_well(stage.workload("leaves").id)
    assert stage.phase("comes") == "queued"
    for name in ("elastic", "comes", "red-0", "red-1"):
        assert bare(stage.reason(name)) == stage.why(Reason.BEING_FREED, gpus=stage.home(name))
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("elastic", "comes", "red-0", "red-1")


def test_a_gpu_is_held_only_by_who_is_there() -> None:
    """The home of one that waits was changed for another, which is on no Gpu and comes to the one that was its home."""
    stage = Stage(2, with_one_small_gpu)
    leavers = []
    for name, request in (("large", 1.0), ("little", 0.3)):
        stage.command(name, request)
        leavers.append(stage.lingers(name))
    stage.ends("large")
    stage.notebook("waits", 0.25, 0.25)
    assert stage.home("waits") == [1]
    stage.ends("little")
    comes = stage.node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL)
    assert stage.node.of_workload(comes).home == (stage.uuid(1),)
    assert stage.home("waits") == [0]
    assert stage.reason("waits") == stage.why(Reason.BEING_FREED, gpus=[0])
    assert stage.cause("waits") is None
    for process in leavers:
        process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("waits")


def two_alone(**policy: object) -> Stage:
    """Two notebooks that do not burst, each at home on a Gpu: together on one they would leave the other empty."""
    stage = Stage(2, starvation_s=100.0, **policy)
    stage.notebook("one", 0.25, 0.25)
    stage.command("between", 0.75)
    stage.notebook("other", 0.25, 0.25)
    stage.ends("between")
    assert (stage.home("one"), stage.home("other")) == ([0], [1])
    return stage


def test_one_changes_its_home_for_who_needs_a_whole_gpu() -> None:
    stage = two_alone()
    stage.command("whole", 1.0)
    assert stage.runs("whole", "one", "other")


def test_where_too_many_would_have_to_leave_a_newcomer_reads_so_and_comes_once_it_has_waited_long() -> None:
    stage = two_alone(max_moved_for_one=0)
    stage.command("whole", 1.0)
    assert stage.phase("whole") == "queued"
    assert stage.reason("whole").because[0] == Why(Reason.MOVES_TOO_MANY, numbers=(100.0, 0))
    stage.command("behind", 0.5)
    assert stage.runs("behind")
    stage.ends("behind")
    stage.after(101)
    assert stage.runs("whole", "one", "other")


def test_who_waits_alone_wakes_the_plan_when_it_has_waited_long() -> None:
    stage = two_alone(max_moved_for_one=0)
    stage.command("whole", 1.0)
    stage.after(60)
    assert stage.node.state.timer_at == 100.0


def test_of_two_whose_home_is_being_freed_who_is_admitted_first_starts_first() -> None:
    stage = Stage(1)
    for name in ("one", "two"):
        stage.command(name, 0.5)
    stage.command("low", 0.5)
    stage.command("high", 0.5, priority=50)
    first, last = stage.lingers("one"), stage.lingers("two")
    stage.ends("one")
    stage.ends("two")
    assert [stage.home("low"), stage.home("high"), stage.runs("low"), stage.runs("high")] == [[0], [0], False, False]
    first.lingers = False
    stage.node.settle()
    assert [stage.runs("low"), stage.runs("high")] == [False, True]
    last.lingers = False
    stage.node.settle()
    assert stage.runs("low", "high")
