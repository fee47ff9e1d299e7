from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StartProcess, StopProcess, SuspendProcess
from nls_scheduler.core.model.pools import Placement, Pool
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Order
from stage import TOTAL, Stage, bare

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu


def with_a_larger_gpu(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The last one has half as much again."""
    return (*gpus[:-1], replace(gpus[-1], memory_total_bytes=TOTAL * 3 // 2))


def two_notebooks(**policy: object) -> Stage:
    stage = Stage(2, **policy)
    stage.notebook("alice")
    stage.notebook("bob")
    return stage


def test_two_notebooks_with_one_home_are_spread_so_that_each_can_burst() -> None:
    stage = two_notebooks()
    assert stage.home("alice") == stage.home("bob") == [0]
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}
    assert stage.plan("alice").allowance_bytes == stage.plan("bob").allowance_bytes == 16 << 30
    home = stage.why(Reason.HOME, gpus=[0])
    assert stage.reason("bob") == stage.why(Reason.BORROWS, gpus=[1], shares=[1], because=[home])


@pytest.mark.parametrize("request_of_third", [1.0, 0.6])
def test_whoever_needs_a_gpu_gets_one_and_only_one_notebook_moves_home(request_of_third: float) -> None:
    stage = two_notebooks()
    stage.holds("alice", 0.3)
    stage.holds("bob", 0.3)
    stage.command("training", request_of_third)
    assert stage.runs("alice", "bob", "training")
    assert (stage.gpu("alice"), stage.gpu("bob"), stage.gpu("training")) == (0, 0, 1)
    assert stage.orders("alice") == ["start"]
    assert stage.orders("bob") == ["start", "suspend", "start"]


def test_the_reason_of_a_move_names_who_needed_the_gpu() -> None:
    stage = two_notebooks()
    stage.holds("alice", 0.4)
    stage.holds("bob", 0.3)
    stage.node.submit(name="training", request_bytes=16 << 30, limit_bytes=16 << 30)
    order = stage.pending("bob")
    assert isinstance(order, SuspendProcess)
    assert order.reason == stage.why(Reason.NEEDED, "training", gpus=[1])
    assert stage.cause("bob") == "training"


def test_the_notebooks_spread_again_when_the_third_has_ended() -> None:
    stage = two_notebooks()
    stage.command("training")
    stage.ends("training")
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}


def test_a_move_for_burst_alone_waits_for_the_end_of_the_cell() -> None:
    stage = two_notebooks()
    stage.command("training")
    stage.cell_starts("alice")
    stage.cell_starts("bob")
    stage.ends("training")
    stage.after(300)
    assert stage.gpu("alice") == stage.gpu("bob") == 0
    stage.cell_ends("bob")
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 1)


def one_cools_down() -> tuple[Stage, str]:
    """One of two has just moved for burst, and was driven home again; which."""
    stage = two_notebooks(cool_down_s=30.0)
    stage.command("first")
    stage.ends("first")
    moved = next(name for name in ("alice", "bob") if stage.workload(name).moved_at is not None)
    stage.command("second")
    return stage, moved


def test_a_notebook_that_moved_for_burst_stays_for_the_cool_down() -> None:
    stage, moved = one_cools_down()
    stage.ends("second")
    before = len(stage.orders(moved))
    stage.after(29)
    assert len(stage.orders(moved)) == before
    stage.after(2)
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}


def test_a_gain_below_min_gain_moves_nobody() -> None:
    stage = Stage(2, min_gain=0.1)
    for name, gpu_share in (("a", 0.05), ("b", 0.05), ("c", 0.9)):
        stage.notebook(name, gpu_share, 1.0)
    orders = {name: len(stage.orders(name)) for name in "abc"}
    stage.after(600)
    assert {name: len(stage.orders(name)) for name in "abc"} == orders


def test_a_whole_gpu_is_kept_free_on_paper() -> None:
    stage = Stage(3)
    for name in ("a", "b", "c", "d"):
        stage.notebook(name, 0.25)
    assert [stage.home(name) for name in ("a", "b", "c", "d")] == [[0]] * 4
    assert {stage.gpu(name) for name in ("a", "b", "c", "d")} == {0, 1, 2}


def test_a_guaranteed_notebook_never_borrows() -> None:
    stage = Stage(2)
    stage.notebook("fixed", 0.5, 0.5)
    stage.notebook("burst", 0.5, 1.0)
    assert (stage.home("fixed"), stage.gpu("fixed")) == ([0], 0)
    assert stage.gpu("burst") == 1
    stage.command("training")
    assert stage.orders("fixed") == ["start"]
    assert (stage.gpu("burst"), stage.gpu("training")) == (0, 1)


def test_a_command_with_two_gpus_has_both_or_waits() -> None:
    stage = Stage(2)
    stage.command("single", 0.75)
    stage.command("double", 0.5, gpu_count=2)
    assert stage.phase("double") == "queued"
    held = stage.why(Reason.HELD, "single", gpus=[0])
    assert stage.reason("double") == stage.why(Reason.NO_ROOM, shares=[0.5], numbers=[2, 1], because=[held])
    stage.ends("single")
    assert stage.gpus("double") == [0, 1]


def test_no_gpu_takes_more_workloads_than_allowed_but_those_that_are_at_home_there() -> None:
    stage = Stage(3, max_workloads_per_gpu=2)
    for name in "abcdef":
        stage.notebook(name, 0.1)
    assert sorted(stage.gpu(name) for name in "abcdef") == [0, 0, 1, 1, 2, 2]
    stage.notebook("g", 0.1)
    assert stage.home("g") == [0] == [stage.gpu("g")]
    assert stage.reason("g").kind is Reason.AT_HOME_WITH_BURST


def test_nobody_moves_to_where_as_many_as_are_allowed_are_until_a_cell_has_ended() -> None:
    stage = Stage(3, max_workloads_per_gpu=1, connect=with_a_larger_gpu)
    stage.notebook("working", 0.5, 1.5)
    stage.notebook("idle", 0.125, 1.5)
    assert stage.gpu("working") == 2
    stage.cell_starts("working")
    stage.user_migrates("working", 1)
    stage.after(7200)
    assert stage.orders("idle") == ["start"]
    stage.cell_ends("working")
    assert stage.gpu("working") == 1


def test_a_started_process_gets_the_gpu_that_the_plan_names() -> None:
    stage = Stage(2)
    stage.node.submit(name="first")
    (order,) = stage.node.pending
    assert isinstance(order, StartProcess)
    assert order.gpus == (stage.uuid(0),)


def test_among_gpus_alike_a_workload_is_at_home() -> None:
    """GPU 0 is full on paper, of a notebook that is away, and as free as GPU 1 in fact."""
    stage = Stage(2)
    stage.notebook("away", 1.0)
    stage.user_suspends("away")
    stage.notebook("alice")
    assert (stage.home("alice"), stage.gpu("alice")) == ([1], 1)


def test_a_borrower_stays_where_the_requests_fill_the_gpu_exactly() -> None:
    stage = two_notebooks()
    stage.command("half", 0.5)
    assert (stage.gpu("bob"), stage.gpu("half")) == (1, 1)
    assert stage.orders("bob") == ["start"]


def test_who_moves_needs_room_for_its_variables_and_not_for_its_caches() -> None:
    stage = Stage(2)
    stage.notebook("bob", 0.25)
    stage.notebook("alice", 0.25)
    stage.holds("bob", 0.6)
    stage.holds("alice", 0.1, cached=0.6)
    assert (stage.gpu("bob"), stage.gpu("alice")) == (0, 1)
    stage.command("owner", 0.8)
    assert stage.runs("bob", "alice", "owner")
    assert (stage.gpu("alice"), stage.orders("bob")) == (0, ["start"])


def test_a_start_that_is_in_a_guarantee_s_way_is_given_up_at_once() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage._ids["bob"] = stage.node.submit(name="bob")
    assert isinstance(stage.pending("bob"), StartProcess)
    stage._ids["owner"] = stage.node.submit(name="owner", request_bytes=16 << 30, limit_bytes=16 << 30)
    assert isinstance(stage.pending("bob"), StopProcess)
    stage.node.settle()
    assert stage.runs("alice", "bob", "owner")


def test_a_start_that_takes_too_long_is_given_up() -> None:
    stage = Stage(1, start_timeout_s=120.0)
    stage._ids["book"] = stage.node.submit(name="book")
    assert stage.node.state.timer_at == 120.0
    stage.node.fire_timer()
    assert isinstance(stage.pending("book"), StopProcess)


def test_who_is_released_does_not_wait_for_its_suspend() -> None:
    stage = Stage(1)
    stage.notebook("book")
    stage.node.tell(ev.SuspendRequested(0.0, stage.workload("book").id, "suspended by its user"))
    assert isinstance(stage.pending("book"), SuspendProcess)
    stage.node.release(stage.workload("book").id)
    assert isinstance(stage.pending("book"), StopProcess)


def test_a_notebook_that_is_released_has_the_time_of_a_reclaim_to_save() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0)
    stage.notebook("book")
    stage.node.release(stage.workload("book").id)
    stop = stage.pending("book")
    assert isinstance(stop, StopProcess)
    assert stop.grace_s == 30.0
    stage.node.fire_timer()
    assert (stage.node.now, stage.workload("book").pending.order) == (32.0, Order.END)


def test_a_release_does_not_put_off_the_deadline_of_who_waits_for_the_gpu() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0)
    stage.notebook("book", 0.5)
    stage.node.tell(ev.CellStarted(stage.node.now, stage.workload("book").id))
    stage.holds("book", 0.8)
    stage.command("training", 0.5)  # is at home at once, and waits for what the notebook holds beyond its own
    stage.after(17)
    stage.node.release(stage.workload("book").id)
    stop = stage.pending("book")
    assert isinstance(stop, StopProcess)
    assert 5.0 < stop.grace_s <= 13.0


def test_a_start_of_who_is_released_has_nothing_to_save() -> None:
    stage = Stage(1)
    stage._ids["book"] = stage.node.submit(name="book")
    stage.node.release(stage.workload("book").id)
    assert isinstance(stage.pending("book"), StopProcess)


def test_who_is_packed_does_not_spread_into_another_pool_nor_anybody_into_a_packed_one() -> None:
    packed = Pool("packed", ("0",), placement=Placement.BINPACK)
    for first in ("packed", "default"):
        stage = Stage(2, pools=(packed,))
        other = "default" if first == "packed" else "packed"
        stage.command("blocker", pools=(other,))
        for name in ("alice", "bob"):
            stage.notebook(name, 0.25, pools=(first, other))
        before = {name: stage.gpu(name) for name in ("alice", "bob")}
        stage.ends("blocker")
        stage.after(600)
        assert {name: stage.gpu(name) for name in ("alice", "bob")} == before


def test_among_equals_the_latest_arrival_moves_for_burst_and_the_fewer_bytes_before_that() -> None:
    for held, moves in ((0.0, "bob"), (0.6, "alice")):
        stage = Stage(2)
        stage.command("blocker")
        for name in ("alice", "bob"):
            stage.notebook(name, 0.25)
            stage.after(1)
        if held:
            stage.holds("bob", held)
        stage.ends("blocker")
        stage.after(60)
        assert stage.orders(moves)[-2:] == ["suspend", "start"]
        assert stage.orders("alice" if moves == "bob" else "bob") == ["start"]


def test_a_borrower_computes_on_where_the_requests_fill_the_gpu_exactly_though_another_gpu_is_free() -> None:
    stage = Stage(3)
    stage.command("blocker")
    stage.notebook("alice")
    stage.notebook("bob")
    stage.command("half", 0.5)
    assert (stage.home("bob"), stage.gpu("bob"), stage.gpu("half")) == ([1], 2, 2)
    stage.cell_starts("bob")
    stage.ends("blocker")
    assert stage.plan("bob").target == stage.workload("bob").current
    assert not stage.plan("bob").yields
    assert bare(stage.reason("bob")) == stage.why(Reason.BORROWS, gpus=[2], shares=[0.5])


def test_one_moves_to_a_free_gpu_for_the_sake_of_two_though_the_smallest_share_of_all_stays() -> None:
    stage = Stage(3)
    stage.command("blocker")
    for name in "abcd":
        stage.notebook(name, 0.25)
    assert sorted(stage.gpu(name) for name in "abcd") == [1, 1, 2, 2]
    stage.ends("blocker")
    stage.after(600)
    assert sorted(stage.gpu(name) for name in "abcd") in ([0, 1, 1, 2], [0, 1, 2, 2])
    assert sorted(len(stage.orders(name)) for name in "abcd") == [1, 1, 1, 3]


def test_a_command_that_could_start_again_does_not_do_so_for_a_better_spread() -> None:
    stage = Stage(2)
    stage.command("blocker")
    for name in ("first", "second"):
        stage.command(name, 0.25, 1.0, requeue=True)
    stage.ends("blocker")
    stage.after(600)
    assert stage.gpu("first") == stage.gpu("second") == 1
    assert stage.orders("first") == stage.orders("second") == ["start"]


def test_the_end_of_a_cool_down_is_waited_for_with_a_timer() -> None:
    stage, moved = one_cools_down()
    stage.cell_starts("bob" if moved == "alice" else "alice")
    stage.after(10)
    stage.ends("second")
    assert stage.gpu("alice") == stage.gpu("bob")
    assert stage.node.state.timer_at == 30.0


def test_nobody_moves_where_the_smallest_share_would_fall_though_all_shares_together_would_grow() -> None:
    stage = Stage(2)
    stage.command("training", 0.55)
    for name in ("alice", "bob"):
        stage.notebook(name, 0.25)
    stage.after(600)
    assert (stage.gpu("training"), stage.gpu("alice"), stage.gpu("bob")) == (0, 1, 1)
    assert stage.orders("alice") == stage.orders("bob") == ["start"]


def three_on_one_gpu() -> Stage:
    """`alice`, `bob` and `carol` share a Gpu of three; the others have just become free, and no gain is enough yet."""
    stage = Stage(3, min_gain=2.0, cool_down_s=0.0)
    for name in ("first", "second"):
        stage.command(name)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, 0.25)
        stage.holds(name, 0.2)
    for name in ("first", "second"):
        stage.ends(name)
    assert len({stage.gpu(name) for name in ("alice", "bob", "carol")}) == 1
    return stage


def test_nobody_moves_for_burst_while_another_is_on_the_way() -> None:
    stage = three_on_one_gpu()
    node = stage.node
    node.tell(ev.MigrateRequested(node.now, stage.workload("carol").id, stage.uuid(1)))
    assert stage.phase("carol") == "suspending"
    node.tell(ev.PolicyChanged(node.now, replace(node.state.policy, min_gain=0.1)))
    assert [stage.plan(name).target for name in ("alice", "bob")] == [stage.workload("alice").current] * 2
    node.settle()
    assert len({stage.gpu(name) for name in ("alice", "bob", "carol")}) == 3


def test_those_who_come_at_once_are_placed_together_whoever_came_first() -> None:
    """One after another, the two that want little would have a Gpu each, and the third would share one."""
    stage = Stage(2)
    stage.command("wide", gpu_count=2)
    for name, limit in (("little", 0.6), ("less", 0.6), ("large", 1.0)):
        stage.notebook(name, 0.25, limit)
    stage.ends("wide")
    assert stage.gpu("little") == stage.gpu("less") != stage.gpu("large")
    assert [stage.orders(name) for name in ("little", "less", "large")] == [["start"]] * 3
    assert stage.plan("large").allowance_bytes == TOTAL


def on_the_way_for_burst() -> Stage:
    """Alice has begun on GPU 0, where bob is about to start, and is to go to GPU 1; nobody has carried that out yet."""
    stage = Stage(2)
    node = stage.node
    stage._ids["alice"] = node.submit(name="alice", request_bytes=TOTAL // 16, limit_bytes=TOTAL)
    node.now = 3.0
    stage._ids["bob"] = node.submit(name="bob", kind=Kind.COMMAND, request_bytes=TOTAL // 4, limit_bytes=TOTAL // 2)
    node.now = 10.0
    stage.completes("alice")
    assert (stage.gpu("alice"), stage.plan("alice").target) == (0, (stage.uuid(1),))
    return stage


def test_who_moves_for_burst_may_use_what_is_left_where_it_is_until_it_has_left() -> None:
    """Her cell might take what bob is guaranteed, if she might use as much as where she goes."""
    stage = on_the_way_for_burst()
    share = (TOTAL - TOTAL // 16 - TOTAL // 4) / (TOTAL - TOTAL // 16 + TOTAL // 4)
    assert stage.plan("alice").allowance_bytes == TOTAL // 16 + int((TOTAL - TOTAL // 16) * share)
    stage.node.settle()
    assert stage.gpu("alice") == 1
    assert stage.plan("alice").allowance_bytes == TOTAL


def test_who_stays_may_use_the_room_of_who_leaves_when_that_has_left() -> None:
    stage = on_the_way_for_burst()
    share = (TOTAL - TOTAL // 16 - TOTAL // 4) / (TOTAL - TOTAL // 16 + TOTAL // 4)
    assert stage.plan("bob").allowance_bytes == TOTAL // 4 + int(TOTAL // 4 * share) < TOTAL // 2
    stage.node.settle()
    assert stage.plan("bob").allowance_bytes == TOTAL // 2
