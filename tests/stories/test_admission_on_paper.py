"""Who is admitted, and where each request is counted: priority, starvation, promises beyond what there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason
from stage import Stage


def test_the_higher_priority_is_admitted_first() -> None:
    stage = Stage(1)
    stage.command("holder")
    stage.command("first")
    stage.after(1)
    stage.command("urgent", priority=5)
    stage.ends("holder")
    assert stage.runs("urgent")
    assert stage.phase("first") == "queued"


def test_who_loses_its_home_goes_behind_the_more_important_that_wait() -> None:
    stage = Stage(2)
    stage.health(1, healthy=False)
    stage.notebook("loser", 1.0)
    stage.notebook("urgent", 1.0, priority=5)
    assert (stage.gpu("loser"), stage.phase("urgent")) == (0, "queued")
    other_way_round = tuple(replace(gpu, healthy=not gpu.healthy) for gpu in stage.node.state.gpus.values())
    stage.node.tell(ev.GpusDiscovered(stage.node.now, other_way_round))
    stage.node.sample()
    stage.node.settle()
    assert (stage.gpu("urgent"), stage.home("loser")) == (1, [])


def test_who_waits_for_its_own_queue_keeps_no_room_however_long_it_waits() -> None:
    stage = Stage(2, queues=(Queue("a", priority=1, limit={"default": 1.0}), Queue("b")), starvation_s=100.0)
    stage.command("a0", queue="a")
    stage.command("a1", queue="a")
    stage.after(1000)
    assert stage.phase("a1") == "queued"
    stage.command("b0", queue="b")
    assert stage.runs("b0")


def test_the_plan_is_made_again_when_somebody_starts_to_starve() -> None:
    stage = Stage(1, starvation_s=300.0)
    stage.command("holder")
    stage.after(10)
    stage.command("large")
    stage.command("small", 0.5)
    assert stage.node.state.timer_at == 310.0


def test_an_elastic_command_does_not_grow_while_somebody_waits() -> None:
    stage = Stage(3, cool_down_s=30.0)
    stage.command("zero")
    stage.command("one")
    stage.command("elastic", gpu_count=1, gpu_count_max=3, requeue=True)
    stage.command("large", gpu_count=3)
    stage.ends("zero")
    stage.after(200)
    assert stage.gpus("elastic") == [2]
    stage.ends("large")
    stage.after(200)
    assert stage.gpus("elastic") == [0, 2]


def test_a_notebook_is_not_promised_what_it_could_not_have_in_its_turn() -> None:
    stage = Stage(1, oversubscribe=2.0)
    stage.command("firm", 0.5)
    stage.notebook("large", 0.75)
    assert stage.home("large") == []
    stage.notebook("small", 0.5)
    assert stage.home("small") == [0]


def test_what_is_promised_to_a_command_is_promised_once() -> None:
    """Beside half a Gpu that is taken for good, the other half may be promised twice."""
    stage = Stage(1, oversubscribe=2.0)
    stage.command("firm", 0.5)
    for name in ("one", "two", "three"):
        stage.notebook(name, 0.5)
    assert [stage.home(name) for name in ("one", "two", "three")] == [[0], [0], []]


def test_of_two_gpus_alike_the_one_that_nobody_borrows_is_the_home() -> None:
    stage = Stage(3)
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 1)
    stage.command("whole")
    assert stage.gpu("whole") == 2
    assert stage.orders("bob") == ["start"]


def test_who_has_waited_long_enough_has_still_done_so_when_an_old_sample_arrives_late() -> None:
    stage = Stage(1, starvation_s=100.0)
    stage.command("holder", 0.5)
    stage.command("large")
    stage.after(101)
    stage.command("small", 0.5)
    assert stage.reason("small") == stage.why(Reason.RESERVED, "large")
    stage.node.now -= 50
    stage.node.sample()
    stage.node.now += 50
    assert stage.phase("small") == "queued"
    assert stage.reason("small") == stage.why(Reason.RESERVED, "large")


def test_an_elastic_command_and_notebooks_make_room_together_for_each_who_comes() -> None:
    """`elastic` gives four of its five Gpus, and the notebooks go together in pairs."""
    stage = Stage(5)
    stage.command("elastic", 0.5, gpu_count=1, gpu_count_max=5, requeue=True)
    for number in range(5):
        stage.notebook(f"n{number}", 0.4, 0.4)
    for name in ("first", "second"):
        stage.command(name, 0.8)
        assert stage.runs(name)
    stage.command("wide", 0.2, gpu_count=4)
    assert stage.runs("wide", "first", "second", "elastic", *(f"n{number}" for number in range(5)))


def test_the_room_that_an_exchange_leaves_is_the_first_one_s_in_line() -> None:
    stage = Stage(3)
    stage.command("elastic", 0.5, gpu_count=1, gpu_count_max=3, requeue=True)
    for name in ("a", "b", "c"):
        stage.notebook(name, 0.4, 0.4)
    stage.command("first", 0.8, priority=5)
    stage.command("second", 0.8)
    stage.command("wide", 0.2, gpu_count=2, priority=3)
    stage.after(400)
    assert stage.runs("first")
    assert stage.runs("wide")
    assert stage.phase("second") == "queued"


@pytest.mark.parametrize("oversubscribe", [1.0, 1.1, 1.2, 1.3, 1.4, 1.7, 1.9, 2.0])
def test_a_whole_gpu_is_one_however_much_is_promised_of_it(oversubscribe: float) -> None:
    """What it counts there and what the Gpu counts are the same to the byte."""
    stage = Stage(1, oversubscribe=oversubscribe)
    stage.command("training")
    assert stage.runs("training")
