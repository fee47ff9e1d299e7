"""Who asks for more takes nobody's guarantee."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.step import step
from nls_scheduler.daemon.daemon import Daemon
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.daemon.peers import Peer
from nls_scheduler.daemon.settings import DaemonSettings
from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec
from nls_scheduler.requests.growing import check
from nls_scheduler.wire.errors import Problem
from stage import TOTAL, Stage

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


def grows(stage: Stage, name: str, request: float) -> list[list[int]]:
    """Asks whether it may; the homes that there would be then, in order of their coming."""
    workload, state = stage.workload(name), stage.node.state
    spec = replace(workload.spec, request_bytes=int(request * TOTAL))
    after = step(state, ev.WorkloadRespecified(stage.node.now, workload.id, spec))[0]
    check(state, after, workload.id)
    return [[after.gpus[uuid].index for uuid in each.home] for each in after.workloads.values()]


def full(gpus: int = 1, **policy: object) -> Stage:
    """Two halves on each Gpu, in order of their coming."""
    stage = Stage(gpus, **policy)
    for number in range(2 * gpus):
        stage.notebook(f"book {number}")
    return stage


def test_a_request_that_grows_takes_no_home_of_who_came_later() -> None:
    with pytest.raises(Problem) as caught:
        grows(full(), "book 0", 1.0)
    assert caught.value.status == 422
    assert caught.value.detail == (
        "The change is refused and nothing is changed: it would take the guarantee of another workload. Ask for less,"
        " or again when there is more room."
    )


def test_it_may_grow_where_there_is_room_and_into_the_place_of_who_waits() -> None:
    stage = full()
    stage.notebook("waits")
    stage.ends("book 1")
    stage.ends("waits")
    assert grows(stage, "book 0", 1.0) == [[0]]
    stage = full()
    stage.notebook("waits")
    assert grows(stage, "waits", 1.0) == [[0], [0], []]
    assert grows(stage, "book 0", 0.25) == [[0], [0], []]


def test_who_came_last_may_ask_for_more_than_it_can_have_and_waits_for_it() -> None:
    assert grows(full(), "book 1", 1.0) == [[0], []]


def test_one_of_a_gang_that_cannot_move_does_not_grow_beyond_its_gpu() -> None:
    """All of them run and would not start again, so that nobody makes room for anybody."""
    stage = Stage(1)
    stage.gang("red", 3, request=0.25, limit=1.0)
    grows(stage, "red-0", 0.5)
    with pytest.raises(Problem, match="nobody on GPU 0 can make room"):
        grows(stage, "red-0", 0.75)


def test_more_may_be_promised_only_to_who_takes_turns() -> None:
    stage = Stage(1, oversubscribe=1.5)
    stage.gang("red", 2, request=0.25, limit=1.0)
    grows(stage, "red-0", 0.75)
    with pytest.raises(Problem, match="nobody on GPU 0 can make room"):
        grows(stage, "red-0", 1.0)
    stage = full(oversubscribe=1.5)
    assert grows(stage, "book 0", 1.0) == [[0], [0]]


def test_where_there_are_queues_they_say_who_may_take_from_whom() -> None:
    assert grows(full(queues=(Queue("default"),)), "book 0", 1.0) == [[0], []]


def test_the_daemon_refuses_it_and_changes_nothing(tmp_path: Path) -> None:
    async def live() -> tuple[Problem, int]:
        driver = SimulatedDriver(tmp_path / "simulation", SimulationSpec.parse("1x16GiB"), 0)
        daemon = Daemon(driver, DaemonSettings(), Journal(tmp_path / "journal.db"))
        await daemon.start()
        for name in ("first", "second"):
            spec = WorkloadSpec(name, Kind.NOTEBOOK, os.geteuid(), 8 * GIB, 8 * GIB)
            daemon.apply(ev.WorkloadSubmitted(daemon.state.at, WorkloadId(name), spec))
        with pytest.raises(Problem) as caught:
            daemon.respecify(
                WorkloadId("first"), {"request": "12GiB"}, Peer(os.geteuid(), None, -1, administrator=True)
            )
        request_bytes = daemon.state.workloads[WorkloadId("first")].spec.request_bytes
        await daemon.close()
        return caught.value, request_bytes

    problem, request_bytes = asyncio.run(live())
    assert problem.status == 422
    assert request_bytes == 8 * GIB
