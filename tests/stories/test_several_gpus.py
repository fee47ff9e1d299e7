from __future__ import annotations

from dataclasses import replace

import pytest

from connections import joined, pairs
from nls_scheduler import events as ev
from nls_scheduler.model import Kind
from nls_scheduler.simulator import GIB, SimulatedNode
from nls_scheduler.topology import Link
from stage import TOTAL, Stage


def test_two_gpus_are_two_with_nvlink_although_others_are_fuller() -> None:
    stage = Stage(4, pairs((0, 1), (2, 3)))
    stage.command("small", 0.25)
    stage.command("double", 0.5, gpu_count=2)
    assert stage.gpu("small") == 0
    assert stage.gpus("double") == [0, 1]
    stage.command("next", gpu_count=2)
    assert stage.gpus("next") == [2, 3]


@pytest.mark.parametrize("link", [Link.NVLINK, Link.SWITCH, Link.NUMA])
def test_the_closer_pair_wins(link: Link) -> None:
    stage = Stage(4, joined((link, (1, 3))))
    stage.command("double", gpu_count=2)
    assert stage.gpus("double") == [1, 3]


def test_without_nvlink_a_numa_node_is_kept() -> None:
    stage = Stage(4, joined(numa=2))
    stage.command("single")
    stage.command("double", gpu_count=2)
    assert (stage.gpu("single"), stage.gpus("double")) == (0, [2, 3])


def test_an_elastic_command_starts_with_what_there_is() -> None:
    stage = Stage(4)
    stage.command("single")
    stage.command("elastic", gpu_count=2, gpu_count_max=8)
    assert stage.gpus("elastic") == [1, 2, 3]


def test_an_elastic_command_waits_for_its_fewest() -> None:
    stage = Stage(2)
    stage.command("single")
    stage.command("elastic", gpu_count=2, gpu_count_max=4)
    assert stage.phase("elastic") == "queued"
    stage.ends("single")
    assert stage.gpus("elastic") == [0, 1]


def test_an_elastic_command_shrinks_for_a_guarantee_by_a_restart() -> None:
    stage = Stage(4)
    stage.command("elastic", gpu_count=2, gpu_count_max=4, requeue=True)
    assert stage.gpus("elastic") == [0, 1, 2, 3]
    stage.command("single")
    assert stage.runs("elastic", "single")
    assert (stage.gpus("elastic"), stage.gpu("single")) == ([0, 1, 2], 3)
    assert stage.orders("elastic") == ["start", "stop", "start"]
    stop = next(c for _, given in stage.node.history for c in given if type(c).__name__ == "StopProcess")
    assert stop.reason == "single needs GPU 3"


def test_an_elastic_command_never_gives_its_fewest() -> None:
    stage = Stage(3)
    stage.command("elastic", gpu_count=2, gpu_count_max=3, requeue=True)
    stage.command("one")
    stage.command("two")
    assert stage.runs("elastic", "one")
    assert len(stage.gpus("elastic")) == 2
    assert stage.phase("two") == "queued"


def test_an_elastic_command_that_cannot_start_again_keeps_what_it_got() -> None:
    stage = Stage(3)
    stage.command("elastic", gpu_count=1, gpu_count_max=3)
    stage.command("single")
    assert stage.gpus("elastic") == [0, 1, 2]
    assert stage.phase("single") == "queued"
    stage.after(600)
    assert stage.orders("elastic") == ["start"]


def test_an_elastic_command_grows_when_gpus_stay_free() -> None:
    stage = Stage(3, cool_down_s=30.0)
    stage.command("single")
    stage.command("elastic", gpu_count=1, gpu_count_max=3, requeue=True)
    assert stage.gpus("elastic") == [1, 2]
    stage.ends("single")
    stage.after(20)
    assert stage.orders("elastic") == ["start"]
    stage.after(20)
    assert stage.gpus("elastic") == [0, 1, 2]
    assert stage.orders("elastic") == ["start", "stop", "start"]
    stage.after(600)
    assert stage.orders("elastic") == ["start", "stop", "start"]


def test_a_gpu_that_was_free_for_a_moment_makes_nobody_start_again() -> None:
    stage = Stage(2, cool_down_s=30.0)
    stage.command("one")
    stage.command("elastic", gpu_count=1, gpu_count_max=2, requeue=True)
    for number in range(3):
        stage.after(100)
        stage.ends("one" if number == 0 else f"one-{number}")
        stage.after(20)
        stage.command(f"one-{number + 1}")
    assert stage.orders("elastic") == ["start"]


def test_sixteen_halves_at_once_on_eight_gpus_are_two_on_each_without_a_move() -> None:
    for limit in (TOTAL, TOTAL // 2):
        for kind in (Kind.NOTEBOOK, Kind.COMMAND):
            node = SimulatedNode.of(8, TOTAL)
            for _ in range(16):
                node.submit(kind=kind, request_bytes=TOTAL // 2, limit_bytes=limit)
            node.settle()
            node.advance(120)
            per_gpu = [sum(uuid in w.current for w in node.state.workloads.values()) for uuid in node.state.gpus]
            assert per_gpu == [2] * 8
            assert len([c for _, given in node.history for c in given if type(c).__name__ != "SetTimer"]) == 16


def test_eight_halves_that_may_burst_have_a_gpu_each() -> None:
    node = SimulatedNode.of(8, TOTAL)
    for _ in range(8):
        node.submit(request_bytes=8 * GIB, limit_bytes=16 * GIB)
    node.settle()
    assert sorted(w.current for w in node.state.workloads.values()) == [(uuid,) for uuid in node.state.gpus]


def test_who_has_a_home_and_asks_for_another_number_of_gpus_gets_another_home() -> None:
    """A stuck process keeps the Gpu of its home, so that it has one and does not run."""
    stage = Stage(3)
    stage.command("first")
    process = stage.node.workloads[stage.workload("first").id].process
    assert process is not None
    process.lingers = True
    stage.ends("first")
    stage.command("double", 0.5, gpu_count=3)
    assert (stage.home("double"), stage.phase("double")) == ([0, 1, 2], "queued")
    double = stage.workload("double")
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, double.id, replace(double.spec, gpu_count=2)))
    stage.node.settle()
    assert len(stage.home("double")) == 2
    process.lingers = False
    stage.after(1)
    assert len(stage.gpus("double")) == 2
