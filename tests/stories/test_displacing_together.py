"""Who is displaced with whom: a gang has all of its homes or none; nobody gets several GPUs with a slice among them."""

from __future__ import annotations

import pytest

from connections import sliced
from nls_scheduler.core.model.queues import Queue
from stage import Stage

POOL = "default"
QUEUES = (Queue("a", over_quota_weight={POOL: 0.0}), Queue("b", quota={POOL: 4.0}), Queue("c", quota={POOL: 2.0}))


def linger(stage: Stage, name: str) -> None:
    """It ends, and its process does not let go of its memory."""
    process = stage.node.workloads[stage.workload(name).id].process
    assert process is not None
    process.lingers = True
    stage.ends(name)


def waiting_gang(**wanted: object) -> Stage:
    """`red` has homes on both Gpus and has not started: there is no room on GPU 0 yet."""
    stage = Stage(2, queues=QUEUES)
    stage.command("before", queue="b")
    linger(stage, "before")
    stage.gang("red", 2, **{"queue": "a", **wanted})
    assert sorted(stage.home("red-0") + stage.home("red-1")) == [0, 1]
    assert [stage.phase("red-0"), stage.phase("red-1")] == ["queued", "queued"]
    return stage


def test_a_gang_that_has_not_started_loses_all_its_homes_or_none() -> None:
    stage = waiting_gang()
    stage.command("owner", 0.5, queue="b")
    assert stage.home("owner") == [0]
    assert [stage.home("red-0"), stage.home("red-1")] == [[], []]


def test_a_gang_that_is_not_preemptible_keeps_all_its_homes() -> None:
    stage = waiting_gang(queue="c", priority=100)
    stage.command("owner", queue="b")
    assert [stage.home("owner"), stage.phase("owner")] == [[], "queued"]
    assert sorted(stage.home("red-0") + stage.home("red-1")) == [0, 1]


@pytest.mark.parametrize(("left", "homes"), [(0.5, [[1], [1]]), (0.25, [[], []])])
def test_a_gang_that_is_displaced_has_smaller_places_for_all_of_it_or_none(left: float, homes: list[list[int]]) -> None:
    stage = Stage(2, queues=QUEUES)
    stage.command("before", queue="b")
    stage.command("firm", 1.0 - left, queue="b")
    stage.command("other", left, queue="b")
    linger(stage, "before")
    stage.gang("red", 2, request=0.25, queue="a")
    assert [stage.home("red-0"), stage.home("red-1")] == [[0], [0]]
    stage.ends("other")
    stage.command("owner", queue="b")
    assert [stage.home("owner"), stage.home("red-0"), stage.home("red-1")] == [[0], *homes]


@pytest.mark.parametrize(("priority", "kept"), [(0, False), (75, True)])
def test_a_priority_takes_from_a_gang_that_is_below_it(*, priority: int, kept: bool) -> None:
    stage = Stage(2, queues=(Queue("a"),))
    stage.gang("red", 2, queue="a", requeue=True, priority=priority)
    stage.command("high", queue="a", priority=50)
    assert stage.runs("red-0", "red-1") == kept
    assert stage.runs("high") != kept


def test_who_is_owed_several_gpus_gets_no_slice() -> None:
    """The slices are idle and would cost least."""
    stage = Stage(4, sliced(2, 3), queues=QUEUES)
    for name in ("one", "two", "three", "four"):
        stage.notebook(name, 1.0, 1.0, queue="a")
    for name in (n for n in ("one", "two", "three", "four") if stage.gpu(n) in (0, 1)):
        stage.cell_starts(name)
    stage.command("owner", gpu_count=2, queue="b")
    assert stage.home("owner") == [0, 1]


def test_who_runs_and_cannot_be_started_again_takes_back_all_that_it_is_on_or_nothing() -> None:
    """An elastic command that nobody may start again, on two GPUs; its queue is owed both when the owner has gone."""
    queues = (Queue("a"), Queue("b", quota={POOL: 1.0}), Queue("c", over_quota_weight={POOL: 0.0}))
    stage = Stage(2, queues=queues)
    stage.command("job", gpu_count=1, gpu_count_max=2, queue="a")
    stage.command("owner", queue="b")
    stage.notebook("filler", 1.0, 1.0, queue="c")
    assert stage.runs("job")
    assert (stage.home("job"), stage.home("owner"), stage.home("filler")) == ([], [0], [1])
    stage.ends("owner")
    assert (stage.home("job"), stage.home("filler")) == ([0, 1], [])
