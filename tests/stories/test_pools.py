"""Pools: Gpus with rules of their own, more promised than there is, and what idleness costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Placement, Pool
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.requests.pool_config import complaint, parse_pools
from stage import Stage, bare

FAST = Pool("fast", ("0", "1"))
SLOW = Pool("slow", ("2", "3"))


def test_a_workload_stays_within_its_pools() -> None:
    stage = Stage(4, pools=(FAST, SLOW))
    for number in range(4):
        stage.notebook(f"slow-{number}", 0.5, pools=("slow",))
    assert {stage.gpu(f"slow-{number}") for number in range(4)} == {2, 3}
    stage.notebook("too much", 0.5, pools=("slow",))
    assert stage.phase("too much") == "queued"
    stage.notebook("fast", 0.5, pools=("fast",))
    assert stage.gpu("fast") in (0, 1)


def test_the_first_pool_with_room_is_the_home() -> None:
    stage = Stage(4, pools=(FAST, SLOW))
    for number in range(3):
        stage.command(f"whole-{number}", 1.0, pools=("fast", "slow"))
    assert [stage.gpu(f"whole-{number}") for number in range(3)] == [0, 1, 2]


def asks_for(stage: Stage, name: str, *pools: str) -> None:
    """`%gpu request --pool`."""
    workload = stage.workload(name)
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, workload.id, replace(workload.spec, pools=pools)))
    stage.node.settle()


@pytest.mark.parametrize("limit", [0.5, 1.0])
def test_who_asks_for_another_pool_goes_there_once_its_cell_has_ended_and_there_is_room(limit: float) -> None:
    stage = Stage(2, pools=(Pool("fast", ("0",)),), stop_grace_s=1.0)
    stage.notebook("alice", 0.5, limit)
    stage.command("holds", 1.0, pools=("fast",))
    asks_for(stage, "alice", "fast")
    assert (stage.gpu("alice"), stage.plan("alice").home) == (1, (stage.uuid(1),)), "there is no room yet"
    stage.cell_starts("alice")
    stage.ends_well("holds")
    assert (stage.gpu("alice"), stage.plan("alice").home) == (1, (stage.uuid(0),))
    stage.cell_ends("alice")
    stage.after(1)
    assert stage.gpu("alice") == 0


def test_who_is_off_its_gpu_comes_back_in_the_pools_that_it_asks_for_and_in_none_that_is_off() -> None:
    stage = Stage(2, pools=(Pool("fast", ("0",)),))
    stage.notebook("alice", 0.5, pools=("fast",))
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "by its user"))
    stage.node.settle()
    off = replace(stage.node.state.policy, pools=(Pool("fast", ("0",), enabled=False),))
    stage.node.tell(ev.PolicyChanged(stage.node.now, off))
    stage.cell_starts("alice")
    assert stage.phase("alice") in ("queued", "suspended")
    assert stage.plan("alice").home == ()
    asks_for(stage, "alice", "fast", "default")
    assert stage.gpu("alice") == 1


def test_who_names_no_pool_gets_the_rest() -> None:
    stage = Stage(3, pools=(FAST,))
    stage.command("plain", 1.0)
    assert stage.gpu("plain") == 2


def test_a_pool_that_is_off_takes_nobody_new_and_keeps_who_is_there() -> None:
    stage = Stage(4, pools=(FAST, SLOW))
    stage.notebook("there", 0.5, pools=("fast",))
    stage.changes(pools=(Pool("fast", ("0", "1"), enabled=False), SLOW))
    assert stage.runs("there")
    stage.notebook("late", 0.5, pools=("fast",))
    assert stage.phase("late") == "queued"


def test_nobody_borrows_in_a_pool_that_is_off() -> None:
    stage = Stage(2, pools=(Pool("off", ("1",), enabled=False),))
    for name in ("alice", "bob"):
        stage.notebook(name, 0.25, pools=("default", "off"))
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)


def test_of_two_gpus_to_borrow_the_one_of_the_pool_that_is_more_wanted_is_taken() -> None:
    stage = Stage(3, pools=(Pool("first", ("2",)), Pool("second", ("1",))))
    for name in ("alice", "bob"):
        stage.notebook(name, 0.25, pools=("first", "second", "default"))
    assert (stage.gpu("alice"), stage.home("bob"), stage.gpu("bob")) == (2, [2], 1)


def test_a_burst_waits_for_a_turn_in_its_own_pool_though_another_pool_s_holder_could_leave_at_once() -> None:
    stage = Stage(2, pools=(Pool("a", ("0",)), Pool("b", ("1",))), residency_per_move=0.0)
    for name, pool in (("alice", "a"), ("bob", "a"), ("carol", "b")):
        stage.notebook(name, 0.3, pools=(pool,))
        stage.holds(name, 0.7)
        if name == "alice":
            stage.user_suspends("alice")
    stage.after(60)
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    assert stage.reason("bob") == stage.why(Reason.YIELDS, "alice", gpus=[0])
    assert stage.orders("carol") == ["start"]
    stage.cell_ends("bob")
    assert (stage.gpu("alice"), stage.gpu("carol")) == (0, 1)


def test_a_pool_has_a_cap_of_its_own() -> None:
    stage = Stage(2, pools=(Pool("one at a time", ("0",), max_workloads_per_gpu=1),))
    for name in "abcd":
        stage.notebook(name, 0.2, pools=("default", "one at a time"))
    assert sorted(stage.gpu(name) for name in "abcd") == [0, 1, 1, 1]
    stage.notebook("at home", 0.2, pools=("one at a time",))
    assert stage.gpu("at home") == 0


def test_binpack_keeps_everybody_at_home() -> None:
    stage = Stage(3, placement=Placement.BINPACK)
    for number in range(4):
        stage.notebook(f"n{number}", 0.25)
    stage.after(120)
    assert {stage.gpu(f"n{number}") for number in range(4)} == {0}


def test_a_notebook_that_idles_too_long_is_suspended_and_its_next_cell_brings_it_back() -> None:
    stage = Stage(1, idle_suspend_s=600.0)
    stage.notebook("alice", 0.5)
    stage.holds("alice", 0.4)
    assert stage.node.state.timer_at == 600.0
    stage.after(599)
    assert stage.runs("alice")
    stage.after(2)
    assert stage.phase("alice") == "suspended"
    assert stage.workload("alice").last_reason == Why(Reason.IDLE, numbers=(600.0,))
    stage.cell_starts("alice")
    assert stage.runs("alice")


def test_a_running_cell_is_not_idleness() -> None:
    stage = Stage(1, idle_suspend_s=600.0)
    stage.notebook("alice", 0.5)
    stage.cell_starts("alice")
    stage.after(3600)
    assert stage.runs("alice")
    assert not stage.plan("alice").yields
    assert stage.plan("alice").target == stage.workload("alice").current


def test_a_kept_notebook_is_not_idle() -> None:
    stage = Stage(1, idle_suspend_s=600.0)
    stage.notebook("alice", 0.5)
    stage.user_keeps("alice", 1000)
    stage.after(999)
    assert stage.runs("alice")
    assert stage.plan("alice").target == stage.workload("alice").current
    stage.after(2)
    assert stage.phase("alice") == "suspended"


def two_on_one() -> Stage:
    """Two notebooks of a whole Gpu each at home on the only one."""
    stage = Stage(1, oversubscribe=2.0)
    for name in ("alice", "bob"):
        stage.notebook(name, 1.0, 1.0)
    return stage


def test_more_can_be_promised_than_there_is_and_never_more_than_the_bound() -> None:
    stage = two_on_one()
    assert stage.home("alice") == stage.home("bob") == [0]
    stage.notebook("carol", 1.0, 1.0)
    assert stage.home("carol") == []


def test_what_is_promised_twice_is_there_on_demand_and_the_status_says_so() -> None:
    stage = two_on_one()
    assert stage.runs("alice")
    assert stage.phase("bob") == "queued"
    assert bare(stage.reason("bob")) == stage.why(Reason.ON_DEMAND, shares=[1])
    stage.after(5)
    stage.cell_starts("bob")
    assert stage.runs("bob")
    assert stage.phase("alice") == "suspended"


def test_the_end_of_a_cell_is_the_end_of_a_turn_where_more_is_promised() -> None:
    stage = two_on_one()
    stage.cell_starts("alice")
    stage.cell_starts("bob")
    stage.after(60)
    assert stage.runs("alice")
    assert stage.orders("alice") == ["start"]
    stage.cell_ends("alice")
    stage.after(1)
    assert stage.runs("bob")


def test_a_command_has_its_request_in_fact_where_more_is_promised_and_a_notebook_waits_for_its_turn() -> None:
    stage = Stage(1, oversubscribe=2.0, reclaim_deadline_s=30.0)
    for name in ("alice", "bob"):
        stage.notebook(name, 0.5, 0.5)
    stage.cell_starts("alice")
    assert stage.runs("alice", "bob")
    stage.command("train", 0.5)
    assert stage.runs("train", "alice")
    assert stage.phase("bob") == "suspended"
    stage.ends("train")
    stage.cell_starts("bob")
    assert stage.runs("bob")


@pytest.mark.parametrize(
    "requests_and_limits",
    [
        [(4, 10), (6, 12), (15, 16), (11, 12)],
        [(5, 12), (10, 16), (14, 16), (11, 16)],
        [(6, 11), (8, 9), (14, 16), (10, 16)],
    ],
)
def test_nobody_leaves_a_home_for_burst_alone_while_another_waits_for_it(
    requests_and_limits: list[tuple[int, int]],
) -> None:
    node = SimulatedNode.of(2, 16 * GIB, Policy(oversubscribe=2.0))
    for request, limit in requests_and_limits:
        node.submit(request_bytes=request * GIB, limit_bytes=limit * GIB)
    node.settle()
    placed = {workload.id: workload.current for workload in node.state.workloads.values()}
    node.advance(31)
    assert {workload.id: workload.current for workload in node.state.workloads.values()} == placed
    assert any(placed.values())


def test_a_request_above_a_gpu_has_no_home_however_much_is_promised() -> None:
    stage = Stage(1, oversubscribe=3.0)
    stage.command("too large", 1.5)
    assert stage.home("too large") == []


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"default": {"gpus": ["0"]}}, "is the rest"),
        ({"a,b": {"gpus": ["0"]}}, "without commas"),
        ({"a": ["0"]}, "as a dictionary"),
        ({"a": {}}, "needs 'gpus'"),
        ({"a": {"gpus": []}}, "needs 'gpus'"),
        ({"a": {"gpus": ["0"], "colour": "red"}}, "no rule 'colour'"),
        ({"a": {"gpus": ["0"], "placement": "tight"}}, "spread or binpack"),
        ({"a": {"gpus": ["0"], "oversubscribe": 0.5}}, "from 1.0 on"),
        ({"a": {"gpus": ["0"], "oversubscribe": float("nan")}}, "from 1.0 on"),
        ({"a": {"gpus": ["0"], "idle_suspend_s": 0}}, "seconds from 1 on"),
        ({"a": {"gpus": ["0"], "max_workloads_per_gpu": 0}}, "from 1 on"),
        ({"a": {"gpus": ["0"], "enabled": "yes"}}, "True or False"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_with_a_sentence(written: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_pools(written)


def test_pools_are_read_in_their_order() -> None:
    pools = parse_pools({"a100": {"gpus": ["NVIDIA A100*"], "oversubscribe": 1.5}, "first": {"gpus": [0]}})
    assert pools == (Pool("a100", ("NVIDIA A100*",), oversubscribe=1.5), Pool("first", ("0",)))


def test_a_pool_without_a_gpu_and_one_that_overlaps_are_told() -> None:
    gpus = Stage(2).node.state.gpus.values()
    assert complaint((FAST,), gpus) is None
    assert complaint((Pool("none", ("7",)),), gpus) == "The pool 'none' names no GPU of this node (7)."
    both = (FAST, Pool("too", ("Simulated*",)))
    assert complaint(both, gpus) == "GPU 0 is named by the pools 'fast' and 'too'; the first has it."
    assert Policy(pools=both).pool_of(next(iter(gpus))) is FAST


def test_who_waits_in_a_pool_that_is_configured_no_more_reads_that() -> None:
    stage = Stage(2, pools=(Pool("first", ("0",)),))
    stage.command("runs", pools=("first",))
    stage.command("waits", pools=("first",))
    stage.changes(pools=())
    assert stage.reason("waits") == stage.why(Reason.NO_POOL, names=["first"])
    stage.ends("runs")
    assert stage.reason("waits") == stage.why(Reason.NO_POOL, names=["first"])
    stage.changes(pools=(Pool("first", ("0",)),))
    assert stage.runs("waits")


@pytest.mark.parametrize("enabled", [True, False])
def test_who_stays_on_a_gpu_whose_pool_has_changed_reads_that(enabled: bool) -> None:
    stage = Stage(2)
    stage.command("train")
    stage.notebook("book", 0.5)
    assert (stage.gpu("train"), stage.gpu("book")) == (0, 1)
    stage.changes(pools=(Pool("other", ("0", "1"), enabled=enabled),))
    for name, gpu in (("train", 0), ("book", 1)):
        closed = stage.why(Reason.POOL_CLOSED, gpus=[gpu], names=["other"])
        assert stage.reason(name) == stage.why(Reason.STAYS, gpus=[gpu], shares=[1], because=[closed])
    stage.after(60)
    assert stage.runs("train", "book")
    stage.changes(pools=())
    assert stage.reason("train") == stage.why(Reason.AT_HOME, gpus=[0], shares=[1])
    assert stage.reason("book") == stage.why(Reason.AT_HOME_WITH_BURST, gpus=[1], shares=[1])


def test_who_borrows_in_a_pool_that_is_closed_to_it_leaves_and_reads_that() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    assert (stage.gpu("bob"), stage.home("bob")) == (1, [0])
    stage.node.tell(ev.PolicyChanged(stage.node.now, replace(stage.node.state.policy, pools=(Pool("other", ("1",)),))))
    order = stage.pending("bob")
    assert order is not None
    assert order.reason == stage.why(Reason.POOL_CLOSED, gpus=[1], names=["other"])
    stage.node.settle()
    assert stage.gpu("bob") == 0


def test_who_waits_for_a_pool_without_a_gpu_reads_that() -> None:
    stage = Stage(2, pools=(Pool("first", ("0",)),))
    stage.changes(pools=(Pool("first", ("7",)), Pool("other", ("0", "1"))))
    stage.command("waits", 0.5, pools=("first",))
    assert stage.reason("waits") == stage.why(Reason.NO_GPU, names=["first"])
    stage.changes(pools=(Pool("first", ("0",)),))
    assert stage.runs("waits")


def test_who_waits_for_a_pool_that_is_off_reads_that() -> None:
    stage = Stage(2, pools=(Pool("first", ("0",)),))
    stage.command("elsewhere", 0.5)
    stage.changes(pools=(Pool("first", ("0",), enabled=False),))
    stage.command("waits", 0.5, pools=("first",))
    assert stage.reason("waits") == stage.why(Reason.POOL_OFF, names=["first"])
    stage.ends("elsewhere")
    assert stage.reason("waits") == stage.why(Reason.POOL_OFF, names=["first"])
    stage.changes(pools=(Pool("first", ("0",)),))
    assert stage.runs("waits")


def test_who_waits_reads_who_holds_the_gpus_that_it_asks_for_and_no_others() -> None:
    stage = Stage(2, pools=(Pool("first", ("0",)),))
    stage.command("elsewhere", 0.5)
    stage.command("there", pools=("first",))
    stage.command("waits", 0.5, pools=("first",))
    held = stage.why(Reason.HELD, "there", gpus=[0])
    assert stage.reason("waits") == stage.why(Reason.NO_ROOM, shares=[0.5], numbers=(1, 1), because=[held])


@pytest.mark.parametrize("neighbour", ["command", "notebook"])
def test_who_is_at_home_comes_home_with_its_own_where_as_many_are_as_may_burst(
    neighbour: str,
) -> None:
    stage = Stage(1, max_workloads_per_gpu=1)
    stage.notebook("alice", 0.125)
    stage.holds("alice", 0.2)
    stage.user_suspends("alice")
    getattr(stage, neighbour)("bob", 0.1, limit=0.1)
    stage.after(100)
    stage.cell_starts("alice")
    assert stage.runs("alice", "bob")


def test_an_idle_suspend_that_failed_is_tried_again_without_any_other_event() -> None:
    stage = Stage(1, idle_suspend_s=20.0)
    stage.notebook("book")
    stage.after(19)
    stage.node.now += 2.0
    stage.node.sample()
    stage.completes("book", fail=True)
    failed_at, at = stage.node.now, stage.node.state.timer_at
    assert at == failed_at + stage.node.state.policy.cool_down_s
    stage.after(at - failed_at + 1.0)
    assert stage.phase("book") == "suspended"
