"""Queues: what each is owed, what it may have besides, and who gives it back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from stage import TOTAL, Stage, bare

A, B = Queue("a", quota={"default": 2.0}), Queue("b", quota={"default": 2.0})


def share_of(queue: str, has: float, share: float) -> Why:
    """What who waits for room reads of its queue: how much it has, and its fair share."""
    return Why(Reason.QUEUE_SHARE, numbers=(has, share), names=(queue, "default"))


def two_departments(**policy: object) -> Stage:
    return Stage(4, queues=(A, B), **policy)


def test_what_nobody_else_wants_a_queue_may_have_beyond_its_quota() -> None:
    stage = two_departments()
    for number in range(4):
        stage.command(f"a{number}", queue="a", requeue=True)
    assert stage.runs(*(f"a{number}" for number in range(4)))


def test_a_quota_is_reclaimed_from_whoever_is_above_theirs_and_only_as_far_as_that() -> None:
    stage = two_departments()
    for number in range(4):
        stage.command(f"a{number}", queue="a", requeue=True)
        stage.after(1)
    for number in range(3):
        stage.command(f"b{number}", queue="b", requeue=True)
    assert stage.runs("a0", "a1", "b0", "b1")
    assert [stage.phase(name) for name in ("a2", "a3", "b2")] == ["queued"] * 3
    assert stage.reason("a3").because[-1] == share_of("a", 2, 2)


def test_who_waits_for_room_reads_what_its_queue_has_and_its_share() -> None:
    stage = Stage(3, queues=(Queue("a"), Queue("b")))
    for name in ("a1", "b1", "a2", "a3", "b2"):
        stage.command(name, queue=name[0])
    assert stage.reason("a3").because[-1] == share_of("a", 2, 1.5)
    assert stage.reason("b2").because[-1] == share_of("b", 1, 1.5)


def test_who_could_never_be_held_by_a_limit_that_came_down_reads_that() -> None:
    stage = Stage(4, queues=(Queue("a"),))
    stage.command("other", queue="a", gpu_count=4)
    stage.command("large", queue="a", gpu_count=3)
    stage.gang("gang", 3, queue="a")
    assert stage.reason("large").kind is Reason.NO_ROOM
    limited = replace(stage.node.state.policy, queues=(Queue("a", limit={"default": 2.0}),))
    stage.node.tell(ev.PolicyChanged(stage.node.now, limited))
    never = Why(Reason.QUEUE_TOO_SMALL, names=("a", "default"), numbers=(3.0, 2.0))
    assert stage.reason("large").because == (never,)
    of_all = replace(never, names=(*never.names, "gang"))
    assert {stage.reason(f"gang-{number}").because for number in range(3)} == {(of_all,)}


def test_what_the_limits_of_several_pools_can_hold_together_only_waits() -> None:
    pools = (Pool("x", ("0", "1")), Pool("y", ("2", "3")))
    stage = Stage(4, queues=(Queue("a", limit={"x": 2.0, "y": 1.0}),), pools=pools)
    stage.gang("fits", 3, queue="a", pools=("x", "y"))
    assert stage.runs("fits-0", "fits-1", "fits-2")
    stage.gang("large", 4, queue="a", pools=("x", "y"))
    assert {why.kind for why in stage.reason("large-0").because} == {Reason.QUEUE_TOO_SMALL}


def test_a_command_that_would_not_come_back_has_the_whole_deadline() -> None:
    stage = Stage(1, queues=(Queue("a"), Queue("b", quota={"default": 1.0})))
    stage.command("training", queue="a")
    stage.command("owner", queue="b")
    assert stage.runs("training")
    assert bare(stage.reason("training")) == stage.why(Reason.NEEDED, "owner", gpus=[0])
    assert stage.cause("training") == "owner"
    stage.after(27)
    assert stage.runs("training")
    stage.after(2)
    assert stage.runs("owner")
    assert not stage.known("training")


def test_a_gang_reads_which_gpu_of_it_is_needed_on_all_of_them() -> None:
    stage = Stage(2, queues=(Queue("a"), Queue("b", quota={"default": 1.0})))
    stage.gang("gang", 2, requeue=True, queue="a")
    stage._ids["owner"] = stage.node.submit(
        name="owner", kind=Kind.COMMAND, limit_bytes=TOTAL, request_bytes=TOTAL, queue="b"
    )
    assert stage.home("owner") == [0]
    for member in ("gang-0", "gang-1"):
        assert bare(stage.reason(member)) == stage.why(Reason.NEEDED, "owner", gpus=[0])
        assert stage.reason(member).because[0].kind is Reason.NO_ROOM


def test_an_elastic_command_that_is_above_the_limit_of_its_queue_with_another_reads_that() -> None:
    stage = Stage(3, queues=(Queue("a", limit={"default": 2.0}),))
    stage.command("elastic", gpu_count=1, gpu_count_max=2, requeue=True, queue="a")
    stage.after(100)
    assert stage.gpus("elastic") == [0, 1]
    stage._ids["single"] = stage.node.submit(
        name="single", kind=Kind.COMMAND, limit_bytes=TOTAL, request_bytes=TOTAL, queue="a"
    )
    limit = Why(Reason.QUEUE_LIMIT, names=("a", "default"), numbers=(2.0, 2.0))
    assert stage.reason("elastic") == stage.why(Reason.NEEDED, "single", gpus=[2], because=[limit])
    stage.node.settle()
    assert (stage.gpus("elastic"), stage.gpus("single")) == ([0], [2])


@pytest.mark.parametrize("gpus", [4, 5])
def test_an_elastic_command_gives_back_what_a_queue_s_quota_lacks_for_one_that_is_not_preemptible(gpus: int) -> None:
    stage = Stage(gpus, queues=(Queue("a", quota={"default": 2.0}),))
    stage.command("firm", gpu_count=1, gpu_count_max=2, requeue=True, queue="a", priority=100)
    stage.command("lent", gpu_count=1, gpu_count_max=2, requeue=True, queue="a")
    stage.after(100)
    assert (len(stage.gpus("firm")), len(stage.gpus("lent"))) == (2, 2)
    stage.command("single", queue="a", priority=100)
    assert stage.runs("single", "firm", "lent")
    assert (len(stage.gpus("firm")), len(stage.gpus("lent"))) == (1, 2)
    stage.command("second", queue="a", priority=100)
    assert stage.reason("second").kind is Reason.HELD_BACK


def test_a_notebook_that_has_to_leave_is_saved_and_comes_back() -> None:
    stage = Stage(1, queues=(Queue("a"), Queue("b", quota={"default": 1.0})))
    stage.notebook("analysis", 1.0, queue="a")
    stage.holds("analysis", 0.5)
    stage.command("owner", queue="b")
    assert stage.runs("owner")
    assert stage.phase("analysis") == "suspended"
    stage.cell_starts("analysis")
    stage.ends("owner")
    assert stage.runs("analysis")


def test_who_has_lost_its_place_on_paper_stays_while_nobody_needs_it_in_fact() -> None:
    stage = Stage(2, queues=(Queue("a"), Queue("b", quota={"default": 1.0})))
    stage.notebook("first", 0.5, queue="a")
    stage.notebook("second", 0.5, queue="a")
    stage.notebook("third", 0.5, queue="a")
    stage.notebook("fourth", 0.5, queue="a")
    stage.notebook("owner", 0.5, queue="b")
    assert stage.runs("owner")
    displaced = [name for name in ("first", "second", "third", "fourth") if not stage.home(name)]
    assert len(displaced) == 1


def test_a_limit_holds_however_much_is_free() -> None:
    stage = Stage(4, queues=(replace(A, limit={"default": 2.5}), B))
    for number in range(3):
        stage.command(f"a{number}", queue="a")
    stage.command("half", 0.5, queue="a")
    assert stage.runs("a0", "a1", "half")
    limit = Why(Reason.QUEUE_LIMIT, numbers=(2.5, 2.5), names=("a", "default"))
    assert stage.reason("a2") == Why(Reason.HELD_BACK, because=(limit,))
    stage.command("other", queue="b")
    assert stage.runs("other")


def test_who_waits_for_its_own_queue_alone_keeps_no_room_free() -> None:
    stage = Stage(2, queues=(Queue("a", limit={"default": 1.0}), Queue("b")), starvation_s=10.0)
    stage.command("a0", queue="a")
    stage.command("a1", queue="a")
    stage.after(20)
    stage.command("b0", queue="b")
    assert stage.runs("b0")


def test_what_is_not_preemptible_needs_a_quota_and_is_not_displaced() -> None:
    stage = Stage(2, queues=(Queue("a", quota={"default": 1.0}), Queue("b", quota={"default": 1.0})))
    stage.command("a0", queue="a", priority=100)
    stage.command("a1", queue="a", priority=100)
    assert stage.runs("a0")
    quota = Why(Reason.QUEUE_QUOTA, numbers=(1, 1, 100), names=("a", "default"))
    assert stage.reason("a1") == Why(Reason.HELD_BACK, because=(quota,))
    stage.command("over", queue="a", priority=50, requeue=True)
    assert stage.runs("over")
    stage.command("b0", queue="b")
    assert stage.runs("a0", "b0")
    assert stage.phase("over") == "queued"


def test_within_a_queue_the_higher_priority_takes_from_the_lower_that_comes_back() -> None:
    stage = Stage(1, queues=(A,))
    stage.command("train", queue="a", priority=50, requeue=True)
    stage.command("equal", queue="a", priority=50)
    stage.after(100)
    assert stage.runs("train")
    stage.command("build", queue="a", priority=100)
    assert stage.runs("build")
    assert stage.position("train") == 1


def test_a_priority_stops_no_command_that_would_not_come_back() -> None:
    stage = Stage(1, queues=(A,))
    stage.command("train", queue="a", priority=50)
    stage.command("build", queue="a", priority=100)
    stage.after(1000)
    assert stage.runs("train")


def test_a_priority_means_nothing_to_other_queues() -> None:
    stage = Stage(2, queues=(Queue("a", quota={"default": 1.0}), Queue("b", quota={"default": 1.0})))
    stage.command("a0", queue="a", priority=1, requeue=True)
    stage.command("b0", queue="b", priority=1, requeue=True)
    stage.command("b1", queue="b", priority=99, requeue=True)
    stage.after(1000)
    assert stage.runs("a0", "b1")
    assert stage.phase("b0") == "queued"


@pytest.mark.parametrize(("weights", "shares"), [((1.0, 1.0), (3, 3)), ((2.0, 1.0), (4, 2)), ((0.0, 1.0), (1, 5))])
def test_what_is_over_quota_is_shared_by_weight(weights: tuple[float, float], shares: tuple[int, int]) -> None:
    names = ("a", "b")
    queues = tuple(
        Queue(name, quota={"default": 1.0}, over_quota_weight={"default": weight})
        for name, weight in zip(names, weights, strict=True)
    )
    stage = Stage(6, queues=queues)
    for number in range(6):
        stage.command(f"a{number}", queue="a", requeue=True)
    for number in range(6):
        stage.command(f"b{number}", queue="b", requeue=True)
    running = tuple(sum(stage.runs(f"{name}{n}") for n in range(6)) for name in names)
    assert running == shares


def test_a_department_shares_among_its_own_before_others_have_it() -> None:
    queues = (
        Queue("physics", quota={"default": 2.0}),
        Queue("optics", parent="physics", quota={"default": 1.0}),
        Queue("plasma", parent="physics", quota={"default": 1.0}),
        Queue("biology", quota={"default": 2.0}),
    )
    stage = Stage(4, queues=queues)
    for number in range(2):
        stage.command(f"optics{number}", queue="optics", requeue=True)
        stage.after(1)
    for number in range(3):
        stage.command(f"biology{number}", queue="biology", requeue=True)
    assert stage.runs("optics0", "optics1", "biology0", "biology1")
    stage.command("plasma0", queue="plasma")
    assert stage.runs("plasma0", "optics0", "biology0", "biology1")
    assert stage.phase("optics1") == "queued"


def test_a_queue_that_is_gone_after_a_reload_counts_in_the_default_one() -> None:
    stage = two_departments()
    stage.command("a0", queue="a", requeue=True)
    stage.changes(queues=(B,))
    assert stage.runs("a0")
    for number in range(4):
        stage.command(f"b{number}", queue="b")
    assert stage.runs("b0", "b1", "b2", "a0")


def test_a_priority_that_changes_while_a_notebook_is_on_its_way_is_obeyed_afterwards() -> None:
    stage = Stage(1, queues=(A,))
    stage.notebook("book", 1.0, queue="a", priority=50)
    stage.holds("book", 0.5)
    ids = stage._ids
    ids["build"] = stage.node.submit(
        name="build",
        kind=stage.workload("book").spec.kind,
        request_bytes=TOTAL,
        limit_bytes=TOTAL,
        queue="a",
        priority=60,
    )
    assert stage.phase("book") == "suspending"
    spec = replace(stage.workload("book").spec, priority=70)
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, ids["book"], spec))
    stage.completes("book")
    stage.node.settle()
    stage.cell_starts("book")
    stage.after(60)
    assert stage.runs("book")
    assert stage.phase("build") in ("queued", "suspended")


def test_who_may_burst_from_now_on_while_it_leaves_for_another_queue_leaves_all_the_same() -> None:
    stage = Stage(1, queues=(Queue("a", quota={"default": 1.0}), Queue("b")))
    stage.notebook("bob", request=1.0, limit=1.0, queue="b")
    stage._ids["alice"] = stage.node.submit(name="alice", request_bytes=TOTAL, limit_bytes=TOTAL, queue="a")
    bob = stage.workload("bob")
    assert stage.phase("bob") == "suspending"
    spec = replace(bob.spec, request_bytes=TOTAL // 2)
    assert spec.may_borrow
    assert not bob.spec.may_borrow
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, bob.id, spec))
    stage.completes("bob")
    stage.node.settle()
    assert stage.runs("alice")
    assert stage.phase("bob") in ("queued", "suspended")


def test_two_departments_and_a_new_pool() -> None:
    """Ten V100 each. B is idle, so A uses all; B comes back; then A100 arrive, in which nobody has a quota yet."""
    v100 = Pool("v100", ("Tesla V100*",), max_workloads_per_gpu=1)
    departments = tuple(Queue(name, quota={"v100": 10.0}) for name in ("a", "b"))
    stage = Stage(1, pools=(v100,), queues=departments)
    gpus = tuple(Gpu(GpuUuid(f"V-{n}"), n, "Tesla V100-SXM2", TOTAL) for n in range(20))
    stage.node.tell(ev.GpusDiscovered(stage.node.now, gpus))
    stage.node.sample()
    wanted = {"pools": ("v100", "a100"), "requeue": True}
    for number in range(20):
        stage.command(f"a{number}", queue="a", **wanted)
    assert sum(stage.runs(f"a{n}") for n in range(20)) == 20

    for number in range(14):
        stage.command(f"b{number}", queue="b", **wanted)
    assert sum(stage.runs(f"a{n}") for n in range(20)) == 10
    assert sum(stage.runs(f"b{n}") for n in range(14)) == 10

    stage.changes(pools=(v100, Pool("a100", ("NVIDIA A100*",), max_workloads_per_gpu=1)))
    more = tuple(Gpu(GpuUuid(f"A-{n}"), 20 + n, "NVIDIA A100-SXM4", TOTAL) for n in range(8))
    stage.node.tell(ev.GpusDiscovered(stage.node.now, (*gpus, *more)))
    stage.node.sample()
    stage.node.settle()
    assert sum(stage.runs(f"a{n}") for n in range(20)) == 14
    assert sum(stage.runs(f"b{n}") for n in range(14)) == 14

    for number in range(10):
        stage.ends(f"b{number}")
    assert sum(stage.runs(f"a{n}") for n in range(20)) == 20, "what B leaves is A's again"


def test_an_elastic_command_counts_with_all_its_gpus_and_takes_no_more_than_its_queue_may_have() -> None:
    stage = Stage(4, queues=(Queue("a", limit={"default": 2.0}),))
    stage.command("elastic", gpu_count=1, gpu_count_max=4, requeue=True, queue="a")
    stage.after(200)
    assert stage.gpus("elastic") == [0, 1]
    stage.command("other", queue="a")
    assert stage.runs("other", "elastic")
    assert len(stage.gpus("elastic")) == 1


def test_an_elastic_command_grows_in_its_own_pool_as_far_as_its_queue_may() -> None:
    pools = (Pool("second", gpus=("3",)),)
    stage = Stage(4, pools=pools, queues=(Queue("a", limit={"default": 2.0}), Queue("b")), cool_down_s=10.0)
    for name in ("first", "second"):
        stage.command(name, queue="b")
    stage.command("elastic", gpu_count=1, gpu_count_max=4, requeue=True, queue="a", pools=("default", "second"))
    stage.after(60)
    assert stage.gpus("elastic") == [2]
    stage.ends("first")
    stage.ends("second")
    stage.after(60)
    assert stage.gpus("elastic") in ([0, 2], [1, 2])


def test_a_fixed_command_that_took_more_than_its_queue_is_owed_makes_room_for_another_queue() -> None:
    """It may not shrink, and so it goes."""
    queues = (Queue("a", quota={"default": 1.0}), Queue("b", quota={"default": 3.0}))
    stage = Stage(4, queues=queues)
    stage.command("elastic", gpu_count=1, gpu_count_max=4, queue="a")
    assert stage.gpus("elastic") == [0, 1, 2, 3]
    stage.command("b", queue="b")
    stage.after(60)
    assert stage.runs("b")


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_a_wish_moves_no_home_into_a_pool_in_which_its_queue_may_have_no_more(limit: float) -> None:
    queues = (Queue("a"), Queue("b", limit={"second": limit}))
    stage = Stage(2, pools=(Pool("second", gpus=("1",)),), queues=queues)
    stage.notebook("book", 0.5, queue="b", pools=("default", "second"))
    stage.notebook("fellow", 0.25, queue="a", pools=("second",))
    stage.user_migrates("book", 1)
    assert stage.home("book") == ([0] if limit < 0.5 else [1])
    assert stage.runs("book")


def test_a_wish_that_finds_no_room_takes_nothing_of_what_its_queue_may_have_there() -> None:
    queues = (Queue("a"), Queue("b", limit={"second": 0.5}))
    stage = Stage(3, pools=(Pool("second", gpus=("1", "2")),), queues=queues)
    stage.command("full", queue="a", pools=("second",))
    for name in ("book", "novel"):
        stage.notebook(name, 0.5, 0.5, queue="b", pools=("default", "second"))
    stage.user_migrates("book", 1)
    stage.user_migrates("novel", 2)
    assert stage.home("full") == [1]
    assert stage.home("book") == [0]
    assert stage.home("novel") == [2]


def test_two_homes_in_two_pools_are_not_exchanged_where_queues_count_them() -> None:
    pools = (Pool("p", gpus=("0",)),)
    queues = (
        Queue("a", quota={"p": 1.0, "default": 1.0}),
        Queue("b", quota={"default": 1.0}, limit={"p": 0.0}),
    )
    stage = Stage(2, pools=pools, queues=queues)
    both = ("p", "default")
    stage.notebook("b1", 0.25, queue="b", pools=both)
    stage.notebook("f", 0.25, queue="a", pools=("default",))
    stage.notebook("g", 0.125, queue="a", pools=("default",))
    stage.after(60)
    stage.notebook("o", 0.25, queue="a", pools=both)
    stage.after(60)
    stage.cell_starts("b1")
    stage.command("n", 0.75, queue="a", pools=("p",))
    assert stage.home("o") == [0]
    assert stage.home("b1") == [1]
    assert stage.runs("o")


def test_a_guest_is_moved_by_no_wish() -> None:
    queues = (Queue("a", quota={"default": 0.5}), Queue("b", quota={"default": 1.5}))
    stage = Stage(2, queues=queues)
    stage.notebook("guest", 0.75, queue="a")
    stage.notebook("fellow", 0.75, queue="a")
    stage.after(60)
    stage.cell_starts("guest")
    stage.cell_starts("fellow")
    stage.command("b", 0.75, queue="b")
    guests = [name for name in ("guest", "fellow") if not stage.home(name)]
    for name in guests:
        before = stage.gpus(name)
        for gpu in (0, 1):
            stage.user_migrates(name, gpu)
        assert stage.home(name) == []
        assert stage.gpus(name) in (before, [])
    assert guests


def test_a_pool_is_kept_for_nobody_whom_its_own_queue_keeps_out_of_it() -> None:
    queues = (Queue("q", quota={"*": 1.0}, limit={"second": 1.0}), Queue("x", quota={"*": 1.0}))
    stage = Stage(3, queues=queues, pools=(Pool("second", ("0", "1")),))
    stage.command("at its limit", queue="q", pools=("second",))
    stage.command("full", queue="x", pools=("default",))
    stage.command("waits", queue="q", pools=("default", "second"))
    stage.after(400)
    assert stage.phase("waits") == "queued"
    stage.command("owed", queue="x", pools=("second",))
    assert stage.runs("owed")


@pytest.mark.parametrize("waits_s", [30, 400])
def test_no_gpu_is_kept_for_one_that_stands_still_but_where_it_can_go_on(waits_s: int) -> None:
    """Nor is it a sign that there is no room for who asks for the same."""
    queues = (Queue("a", quota={"*": 1.0}), Queue("b", quota={"*": 1.0}))
    stage = Stage(2, queues=queues, freeze_cells=True)
    stage.node.freezes = stage.node.deaf = True
    for name in ("one", "other"):
        stage.notebook(name, 1.0, queue="b")
        stage.cell_starts(name)
        stage.allocates(name, 0.5)
    stage.after(60)
    stage.command("owner", queue="a")
    stage.after(60)
    still, runs = sorted(("one", "other"), key=stage.runs)
    assert stage.workload(still).frozen
    stage.ends(runs)
    stage.after(waits_s)
    stage.notebook("alike", 1.0, queue="b")
    assert stage.runs("owner", "alike")
    assert stage.workload(still).frozen


def test_a_gang_that_its_queue_can_only_take_later_reads_that_and_keeps_nothing_from_others() -> None:
    """The first of it alone would be within the limit."""
    limited, guest = Queue("a", limit={"default": 3.0}), Queue("b", over_quota_weight={"default": 0.0})
    stage = Stage(4, queues=(limited, guest))
    stage.command("own", queue="a", gpu_count=2)
    stage.gang("red", 2, queue="a")
    stage.after(301)
    has = stage.why(Reason.QUEUE_LIMIT, numbers=[2, 3], names=["a", "default"])
    assert [stage.reason(f"red-{n}") for n in range(2)] == [stage.why(Reason.HELD_BACK, because=[has])] * 2
    stage.command("other", queue="b")
    assert stage.runs("other")
    stage.ends("own")
    assert stage.runs("red-0", "red-1")


def test_what_is_kept_for_one_beyond_the_share_is_kept_from_all_for_the_next_one_within_it() -> None:
    stage = Stage(2, queues=(Queue("a"),))
    for number in range(2):
        stage.command(f"long-{number}", 0.6, queue="a")
    stage.command("beyond", queue="a", gpu_count=2)
    stage.command("within", 0.8, queue="a")
    stage.after(301)
    stage.command("small", 0.3, queue="a")
    assert stage.reason("small") == stage.why(Reason.RESERVED, "within")
    stage.ends("long-0")
    assert stage.runs("within")


def test_room_is_had_from_a_lower_priority_and_from_another_queue_together() -> None:
    """Without the lower one its queue stays within its share."""
    stage = Stage(1, queues=(Queue("a", quota={"default": 1.0}), Queue("b", over_quota_weight={"default": 0.0})))
    stage.command("low", 0.75, queue="a", requeue=True)
    stage.command("lent", 0.25, queue="b", requeue=True)
    stage.command("high", queue="a", priority=90)
    assert stage.runs("high")


def test_a_gang_that_waits_for_a_member_is_in_front_of_nobody_in_the_line() -> None:
    stage = Stage(1, queues=(Queue("a"), Queue("b")))
    stage.command("runs", queue="a")
    stage.gang("red", 2, size=3, request=0.25, queue="a")
    for name in ("first", "second"):
        stage.command(name, queue="b")
    assert [stage.position(name) for name in ("first", "second", "red-0", "red-1")] == [1, 2, 3, 4]
