"""Whose home goes when a queue is owed the room: as little as possible, the least harm first."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model.commands import StartProcess
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from stage import TOTAL, Stage, bare

POOL = "default"


def owed(gpus: int = 2, **policy: object) -> Stage:
    """Queue `b` is owed every Gpu; `a` has what nobody else wants."""
    return Stage(gpus, queues=(Queue("a", over_quota_weight={POOL: 0.0}), Queue("b", quota={POOL: 2.0})), **policy)


def nested(limit: float, **quotas: float) -> Stage:
    """Queues in one parent that may have no more than its limit; four Gpus."""
    inside = (Queue(name, "p", quota={POOL: quota}) for name, quota in quotas.items())
    return Stage(4, queues=(Queue("p", quota={POOL: limit}, limit={POOL: limit}), *inside))


def test_who_turns_out_not_to_be_in_the_way_keeps_its_home() -> None:
    """`small` alone is not enough, and with `whole` it is not needed any more."""
    stage = nested(2.0, a=0.0, b=1.0)
    for name, size, priority in (("small", 0.5, 0), ("whole", 1.0, 1), ("other", 0.5, 2)):
        stage.command(name, size, queue="a", priority=priority, requeue=True)
    stage.command("owner", queue="b")
    assert stage.runs("owner", "small", "other")
    assert stage.home("whole") == []


def test_nobody_is_taken_from_a_queue_that_has_come_down_to_its_share() -> None:
    stage = nested(3.0, a=1.0, b=1.0, c=1.0)
    for number, (name, size) in enumerate((("a1", 0.5), ("a2", 1.0), ("c1", 0.5), ("c2", 1.0))):
        stage.command(name, size, queue=name[0], priority=number, requeue=True)
    stage.command("owner", queue="b")
    assert stage.runs("owner", "a2", "c2")
    assert (stage.home("a1"), stage.home("c1")) == ([], [])


def test_on_one_gpu_the_idle_goes_before_one_that_computes() -> None:
    stage = owed(1)
    for name in ("computes", "idle"):
        stage.notebook(name, 0.5, 0.5, queue="a")
    stage.cell_starts("computes")
    stage.command("owner", 0.5, queue="b")
    assert stage.runs("owner", "computes")
    assert stage.home("idle") == []


def test_on_one_gpu_fewer_bytes_go_before_a_longer_idle() -> None:
    stage = owed(1)
    for name, held in (("large", 0.4), ("small", 0.1)):
        stage.notebook(name, 0.5, 0.5, queue="a")
        stage.holds(name, held)
        stage.after(60)
    stage.command("owner", 0.5, queue="b")
    assert stage.runs("owner", "large")
    assert stage.home("small") == []


def test_what_is_scattered_is_taken_back_and_the_rest_packed() -> None:
    stage = owed(2)
    for name in ("b1", "a1", "b2", "a2"):
        stage.notebook(name, 0.5, 0.5, queue=name[0])
    assert (stage.gpu("b1"), stage.gpu("b2")) == (0, 1)
    stage.command("owner", queue="b")
    assert stage.runs("owner", "b1", "b2")
    assert stage.gpu("b1") == stage.gpu("b2")
    assert (stage.home("a1"), stage.home("a2")) == ([], [])


def test_of_what_is_scattered_who_is_not_in_the_way_after_the_packing_notices_nothing() -> None:
    stage = owed(3)
    for name in ("b1", "a1", "b2", "a2", "b3", "a3"):
        stage.notebook(name, 0.5, 0.5, queue=name[0])
    stage.command("owner", queue="b")
    assert stage.runs("owner", "b1", "b2", "b3")
    (spared,) = (name for name in ("a1", "a2", "a3") if stage.home(name))
    assert stage.orders(spared) == ["start"]


def test_who_comes_back_by_itself_goes_before_who_does_not_whatever_their_priorities() -> None:
    stage = owed(2)
    stage.command("once", queue="a", priority=0)
    stage.command("again", queue="a", priority=50, requeue=True)
    stage.command("owner", queue="b")
    assert stage.runs("owner", "once")


def test_idle_goes_before_running_whatever_their_priorities() -> None:
    stage = owed(2)
    stage.notebook("computes", 1.0, 1.0, queue="a", priority=0)
    stage.notebook("idle", 1.0, 1.0, queue="a", priority=50)
    stage.cell_starts("computes")
    stage.command("owner", queue="b")
    assert stage.runs("owner", "computes")


def test_who_is_not_kept_goes_before_who_is_whatever_their_priorities() -> None:
    stage = owed(2)
    stage.notebook("kept", 1.0, 1.0, queue="a", priority=0)
    stage.notebook("other", 1.0, 1.0, queue="a", priority=50)
    stage.user_keeps("kept", 600)
    stage.command("owner", queue="b")
    assert stage.runs("owner", "kept")


def test_the_lower_priority_goes_first_whatever_it_holds() -> None:
    stage = owed(2)
    stage.notebook("low", 0.75, 1.0, queue="a", priority=0)
    stage.notebook("high", 0.75, 1.0, queue="a", priority=50)
    stage.holds("low", 0.9)
    stage.command("owner", queue="b")
    assert stage.runs("owner", "high")
    assert stage.home("low") == []


def test_of_those_on_a_gpu_the_highest_priority_counts() -> None:
    stage = owed(2)
    for name, priority in (("low", 0), ("high", 60), ("one", 40), ("other", 40)):
        stage.notebook(name, 0.5, 0.5, queue="a", priority=priority)
    assert stage.home("low") == stage.home("high") != stage.home("one")
    stage.command("owner", queue="b")
    assert stage.runs("owner", "low", "high")


def test_one_goes_before_two_who_were_idle_for_longer() -> None:
    stage = owed(2)
    for name, size in (("first", 0.5), ("second", 0.5), ("whole", 1.0)):
        stage.notebook(name, size, size, queue="a")
        stage.after(10)
    stage.command("owner", queue="b")
    assert stage.runs("owner", "first", "second")
    assert stage.home("whole") == []


def test_what_is_away_already_need_not_be_moved() -> None:
    stage = owed(2)
    for name, held in (("away", 0.9), ("here", 0.3)):
        stage.notebook(name, 1.0, 1.0, queue="a")
        stage.holds(name, held)
    stage.user_suspends("away")
    assert stage.home("away") != []
    stage.command("owner", queue="b")
    assert stage.runs("owner", "here")
    assert stage.home("away") == []


def test_a_command_that_has_not_started_goes_before_a_notebook_whatever_it_would_lose_later() -> None:
    stage = owed(2)
    stage.command("before", queue="b")
    stage.lingers("before")
    stage.ends("before")
    stage.command("late", queue="a")
    stage.notebook("here", 1.0, 1.0, queue="a")
    stage.holds("here", 0.3)
    assert (stage.home("late"), stage.phase("late"), stage.home("here")) == ([0], "queued", [1])
    stage.command("owner", queue="b")
    assert (stage.home("owner"), stage.home("late"), stage.home("here")) == ([0], [], [1])


def test_a_lower_priority_of_the_same_queue_keeps_its_home_in_another_pool() -> None:
    pools = (Pool("x", ("0",)), Pool("y", ("1",)))
    stage = Stage(2, queues=(Queue("a"),), pools=pools)
    for pool in ("x", "y"):
        stage.command(f"low-{pool}", queue="a", pools=(pool,), requeue=True)
    stage.command("high", queue="a", pools=("x",), priority=50)
    assert stage.runs("high", "low-y")
    assert stage.home("low-x") == []


def test_the_fewest_bytes_go() -> None:
    stage = owed(2)
    stage.notebook("large", 0.6, 1.0, queue="a")
    stage.notebook("one", 0.45, 0.45, queue="a")
    stage.notebook("two", 0.45, 0.45, queue="a")
    stage.holds("large", 0.9)
    stage.command("owner", 0.5, queue="b")
    assert stage.home("large") != []
    assert sorted([len(stage.home("one")), len(stage.home("two"))]) == [0, 1]


def test_of_two_that_run_the_latest_arrival_goes() -> None:
    stage = owed(2)
    for name in ("first", "second"):
        stage.notebook(name, 1.0, 1.0, queue="a")
        stage.after(10)
    for name in ("second", "first"):
        stage.cell_starts(name)
        stage.cell_ends(name)
        stage.after(10)
    for name in ("first", "second"):
        stage.cell_starts(name)
    stage.command("owner", queue="b")
    assert stage.home("first") != []
    assert stage.home("second") == []


def late_waits_for_memory() -> Stage:
    """`late` has a home, on a Gpu of which the process before does not let go."""
    stage = owed(2)
    stage.command("before", queue="b")
    for name in ("firm", "other"):
        stage.command(name, 0.5, queue="b")
    stage.lingers("before")
    stage.ends("before")
    stage.command("late", 0.5, queue="a")
    return stage


def test_who_is_displaced_has_a_smaller_place_where_there_is_one() -> None:
    """`late` has not started yet, as memory is not free in fact: it starts on the other Gpu."""
    stage = late_waits_for_memory()
    assert (stage.home("late"), stage.phase("late")) == ([0], "queued")
    stage.ends("other")
    stage.command("owner", queue="b")
    assert (stage.home("owner"), stage.home("late")) == ([0], [1])
    assert stage.runs("late")


def test_who_would_be_displaced_in_vain_keeps_its_home() -> None:
    """`owner` asks for two Gpus, of which one cannot be had."""
    stage = owed(2)
    stage.command("firm", queue="b")
    stage.command("soft", queue="a", requeue=True)
    stage.command("owner", gpu_count=2, queue="b")
    stage.after(600)
    assert stage.runs("firm", "soft")
    assert stage.home("soft") == [1]
    assert stage.orders("soft") == ["start"]


def test_who_has_lost_its_home_does_not_stay_beside_a_stranger() -> None:
    stage = owed(2)
    for name, size in (("a1", 0.25), ("b1", 0.75), ("b2", 1.0)):
        stage.notebook(name, size, size, queue=name[0])
    for name in ("b1", "b2"):
        stage.user_suspends(name)
    stage.notebook("owner", 0.25, 0.25, queue="b")
    assert (stage.home("a1"), stage.gpu("a1"), stage.gpu("owner")) == ([], 0, 0)
    stage.stranger_uses(0, 0.01)
    assert stage.phase("a1") in ("queued", "suspended")


def test_who_has_lost_its_home_stays_where_nobody_needs_its_place_yet() -> None:
    """GPU 1 is full on paper, of notebooks that are away: who is owed the room of GPU 0 uses GPU 1 meanwhile.

    It stays there when they come back, and the last of them is at home on GPU 0 instead.
    """
    stage = owed(2)
    for name in ("a1", "a2", "b1", "b2"):
        stage.notebook(name, 0.5, 0.5, queue=name[0])
    for name in ("b1", "b2"):
        stage.user_suspends(name)
    stage.notebook("owner", 0.5, 1.0, queue="b")
    (guest,) = [name for name in ("a1", "a2") if not stage.home(name)]
    assert (stage.home("owner"), stage.gpu("owner")) == ([0], 1)
    assert stage.runs("a1", "a2")
    stays = stage.reason(guest)
    assert bare(stays) == stage.why(Reason.STAYS_AS_GUEST, gpus=[0])
    assert [bare(behind) for behind in stays.because] == [stage.no_room(0.5)]
    stage.cell_starts("b1")
    assert (stage.gpu("b1"), stage.gpu("owner")) == (1, 1)
    stage.cell_starts("b2")
    assert stage.runs("b1", "b2", "owner")
    assert (stage.gpu("owner"), stage.gpu("b2")) == (1, 0)
    assert stage.phase(guest) in ("queued", "suspended")


def test_who_has_lost_its_home_has_it_again_where_it_runs_when_only_paper_has_to_move_for_that() -> None:
    """`small` does not start anew on the other GPU: the home of a notebook that is off goes there instead."""
    stage = Stage(2, queues=(Queue("a"),))
    stage.command("whole", queue="a")
    stage.command("small", 0.1, queue="a", priority=-1, requeue=True)
    stage.notebook("notebook", 0.5, 1.0, queue="a")
    stage.user_suspends("notebook")
    stage.command("newcomer", 0.5, queue="a")
    assert (stage.gpu("small"), stage.home("small")) == (1, [])
    before = stage.orders("small")
    stage.ends("whole")
    assert (stage.home("small"), stage.home("notebook")) == ([1], [0])
    assert stage.gpu("small") == 1
    assert stage.orders("small") == before


def test_who_is_not_enough_alone_keeps_its_home_when_the_one_that_is_enough_goes() -> None:
    """`small` is idle and would go first; when `large`, which computes, has to go as well, `small` need not."""
    stage = owed(2)
    stage.command("firm", queue="b")
    stage.notebook("large", 0.75, 0.75, queue="a")
    stage.cell_starts("large")
    stage.notebook("small", 0.25, 0.25, queue="a")
    stage.command("owner", 0.5, queue="b")
    assert (stage.home("owner"), stage.home("large"), stage.home("small")) == ([1], [], [1])
    stage.cell_ends("large")
    assert stage.runs("firm", "owner", "small")
    assert stage.orders("small") == ["start"]


def test_of_those_for_whom_there_is_room_left_the_one_that_computes_keeps_its_home() -> None:
    stage = owed(2)
    stage.command("firm", queue="b")
    for name, share in (("large", 0.5), ("busy", 0.25), ("idle", 0.25)):
        stage.notebook(name, share, share, queue="a")
    stage.holds("large", 0.4)
    for name in ("large", "busy"):
        stage.cell_starts(name)
    stage.command("owner", 0.6, queue="b")
    assert [stage.home(name) for name in ("owner", "busy", "idle", "large")] == [[1], [1], [], []]


def test_who_is_displaced_starts_in_its_smaller_place_at_once() -> None:
    stage = late_waits_for_memory()
    stage.node.release(stage.workload("other").id)
    stage.node.complete(stage.node.pending[0])
    stage.node.sample()
    assert (stage.home("late"), stage.phase("late")) == ([0], "queued")
    stage.node.submit(name="owner", kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, queue="b")
    assert stage.home("late") == [1]
    assert isinstance(stage.pending("late"), StartProcess)


def test_whose_place_would_not_be_enough_keeps_it() -> None:
    stage = Stage(1, queues=(Queue("a"),))
    stage.command("firm", 0.75, queue="a")
    stage.notebook("low", 0.25, 0.25, queue="a")
    stage.command("high", 0.5, queue="a", priority=50)
    assert (stage.home("low"), stage.phase("high")) == ([0], "queued")
    assert stage.reason("low") == stage.why(Reason.AT_HOME, gpus=[0], shares=[0.25])
    stage.after(600)
    assert stage.orders("low") == ["start"]


def test_who_is_displaced_to_another_gpu_reads_for_whom() -> None:
    """The queue may have no more than `owner` and half a Gpu: `first` goes, and `second` has a place on GPU 0."""
    stage = Stage(2, queues=(Queue("a", limit={POOL: 1.5}), Queue("b")))
    stage.command("firm", 0.25, queue="b")
    stage.notebook("first", 0.75, 0.75, queue="a")
    stage.after(1)
    stage.notebook("second", 0.5, 0.5, queue="a")
    stage.node.submit(name="owner", kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, queue="a", priority=50)
    assert (stage.home("first"), stage.home("second")) == ([], [0])
    assert (stage.gpu("second"), stage.reason("second")) == (1, stage.why(Reason.NEEDED, "owner", gpus=[1]))
    assert stage.cause("second") == "owner"
    stage.node.settle()
    assert stage.runs("second")
    assert stage.gpu("second") == 0


@pytest.mark.parametrize("names", [("large", "small"), ("small", "large")])
def test_who_is_owed_a_whole_gpu_has_it_whoever_of_the_others_came_first(names: tuple[str, str]) -> None:
    """Without the large one the queue is down to its share: the small one has to go before."""
    stage = Stage(1, queues=(Queue("a", quota={POOL: 0.25}), Queue("b", quota={POOL: 1.0})))
    for name in names:
        stage.notebook(name, size := {"large": 0.75, "small": 0.1}[name], size, queue="a")
    stage.command("owner", queue="b")
    assert stage.runs("owner")
    assert (stage.home("large"), stage.home("small")) == ([], [])


def test_who_is_owed_several_gpus_has_them_although_the_one_with_the_least_harm_has_to_be_the_last_to_go() -> None:
    stage = Stage(2, queues=(Queue("a", quota={POOL: 0.5}), Queue("b", quota={POOL: 1.5})))
    stage.notebook("large", 0.9, 0.9, queue="a")
    stage.user_suspends("large")
    for name, size, queue in (("middle", 0.5, "a"), ("firm", 0.4, "b")):
        stage.command(name, size, queue=queue, requeue=True)
    assert [stage.home(name) for name in ("large", "middle", "firm")] == [[0], [1], [1]]
    stage.command("owner", 0.55, queue="b", gpu_count=2)
    assert stage.runs("owner", "firm")
    assert (stage.home("large"), stage.home("middle")) == ([], [])


@pytest.mark.parametrize("small", [1, 2, 3])
def test_one_large_goes_where_the_small_ones_would_bring_their_queue_down_to_its_share(small: int) -> None:
    """They have less harm to suffer, but all that may go of them is not enough."""
    stage = Stage(2, queues=(Queue("a", quota={POOL: 1.2}), Queue("b", quota={POOL: 0.8})))
    stage.notebook("mine", 0.75, 0.75, queue="a")
    stage.notebook("beside", 0.2, 0.2, queue="b", priority=60)
    stage.notebook("large", 0.6, 0.6, queue="b", priority=50)
    for number in range(small):
        stage.notebook(f"small{number}", 0.3 / small, 0.3 / small, queue="b")
    assert stage.gpu("large") != stage.gpu("mine")
    stage.command("owner", 0.45, queue="a")
    assert stage.runs("owner", "mine", "beside", *(f"small{number}" for number in range(small)))
    assert stage.home("large") == []


def test_one_large_goes_that_is_enough_to_the_last_byte() -> None:
    stage = Stage(2, queues=(Queue("a", quota={POOL: 1.2}), Queue("b", quota={POOL: 0.8})))
    stage.notebook("mine", 0.75, 0.75, queue="a")
    for name, size, priority in (("beside", 0.35, 60), ("large", 0.45, 50), ("small", 0.2, 0)):
        stage.notebook(name, size, size, queue="b", priority=priority)
    assert stage.home("beside") == stage.home("large") == stage.home("small") != stage.home("mine")
    stage.command("owner", 0.45, queue="a")
    assert stage.runs("owner", "mine", "beside", "small")
    assert stage.home("large") == []


def test_a_gang_goes_for_one_that_is_owed_room_where_another_than_its_first_is() -> None:
    """Nobody else is enough: `small`, which has less harm to suffer, would bring their queue down to its share."""
    stage = Stage(2, queues=(Queue("a", quota={POOL: 0.65}, over_quota_weight={POOL: 0.0}), Queue("b")))
    stage.command("firm", 0.61, queue="b")
    for number, size in enumerate((0.22, 0.4)):
        stage.command(f"red-{number}", size, queue="a", gang="red", gang_size=2, requeue=True)
    stage.notebook("small", 0.15, 0.15, queue="a")
    stage.command("other", 0.22, queue="b")
    assert [stage.gpu(name) for name in ("firm", "red-0", "small", "red-1", "other")] == [0, 0, 0, 1, 1]
    stage.command("owner", 0.4, queue="b")
    assert stage.runs("firm", "small", "other", "owner")
    assert (stage.home("red-0"), stage.home("red-1")) == ([], [])


def test_one_that_is_enough_is_found_among_many_larger_ones_that_are_not_preemptible() -> None:
    stage = Stage(2, queues=(Queue("a", quota={POOL: 1.05}), Queue("b", quota={POOL: 0.95})))
    stage.notebook("mine", 0.97, 0.97, queue="a")
    for number in range(8):
        stage.notebook(f"firm{number}", 0.105, 0.105, queue="b", priority=100)
    stage.notebook("large", 0.1, 0.1, queue="b", priority=50)
    stage.notebook("small", 0.04, 0.04, queue="b")
    assert stage.home("large") == stage.home("small") == stage.home("firm7") != stage.home("mine")
    stage.command("owner", 0.08, queue="a")
    assert stage.runs("owner", "mine", "small", *(f"firm{number}" for number in range(8)))
    assert stage.home("large") == []
