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
from nls_scheduler.requests.submission import check_place
from nls_scheduler.wire.errors import Problem
from stage import TOTAL, Stage

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


def grows(stage: Stage, name: str, request: float) -> list[list[int]]:
    """Asks whether it may; the homes that there would be then, in order of their coming."""
    workload, state = stage.workload(name), stage.node.state
    spec = workload.spec
    spec = replace(spec, request_bytes=(size := int(request * TOTAL)), limit_bytes=max(size, spec.limit_bytes))
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


@pytest.mark.parametrize("off", [False, True])
def test_who_came_last_keeps_its_home_and_is_refused_what_there_is_no_room_for(*, off: bool) -> None:
    stage = full()
    if off:
        stage.user_suspends("book 1")
    with pytest.raises(Problem, match="nothing is changed: it would lose its own guarantee"):
        grows(stage, "book 1", 1.0)


def test_who_came_first_does_not_lose_its_home_to_who_came_later_either() -> None:
    """book 2, which has no home yet, would get the one that book 0 leaves to those who stay where they are."""
    stage = Stage(1)
    stage.notebook("asks", 0.5, 0.5)
    stage.cell_starts("asks")
    stage.command("runs", 0.5)
    stage.command("waits", 0.5)
    with pytest.raises(Problem, match="nothing is changed: it would lose its own guarantee"):
        grows(stage, "asks", 1.0)


def test_who_asks_for_less_may_lose_what_it_has_by_its_priority() -> None:
    stage = full()
    stage.notebook("waits", 0.75)
    assert grows(stage, "book 1", 0.25) == [[0], [0], []]


def test_one_of_a_gang_that_cannot_move_does_not_grow_beyond_its_gpu() -> None:
    """All of them run and would not start again, so that nobody makes room for anybody."""
    stage = Stage(1)
    stage.gang("red", 3, request=0.25, limit=1.0)
    grows(stage, "red-0", 0.5)
    with pytest.raises(Problem, match="nobody on GPU 0 can make room"):
        grows(stage, "red-0", 0.75)


def test_who_stays_on_a_gpu_that_is_out_of_service_does_not_grow_beyond_it() -> None:
    """Nobody comes to such a Gpu, and its own room was not asked: it read that it may use more than the Gpu has."""
    stage = Stage(2)
    stage.command("runs", 0.5, limit=1.0)
    stage.health(0, healthy=False)
    assert grows(stage, "runs", 1.0) == [[0]]
    with pytest.raises(Problem, match="nobody on GPU 0 can make room"):
        grows(stage, "runs", 1.25)


def test_more_may_be_promised_only_to_who_takes_turns() -> None:
    stage = Stage(1, oversubscribe=1.5)
    stage.gang("red", 2, request=0.25, limit=1.0)
    grows(stage, "red-0", 0.75)
    with pytest.raises(Problem, match="nobody on GPU 0 can make room"):
        grows(stage, "red-0", 1.0)
    stage = full(oversubscribe=1.5)
    assert grows(stage, "book 0", 1.0) == [[0], [0]]


def in_queues(quota: float, *, first: tuple[str, int] = ("a", 50), second: tuple[str, int], **wanted: object) -> Stage:
    """A quarter and then a half of one Gpu, each in its queue with its priority; all queues but c have that quota."""
    queues = Queue("a", quota={"*": quota}), Queue("b", quota={"*": quota}), Queue("c", over_quota_weight={"*": 0.0})
    stage = Stage(1, queues=queues)
    stage.notebook("grows", 0.25, 0.25, queue=first[0], priority=first[1])
    stage.after(5)
    stage._submit("other", wanted.pop("kind", Kind.NOTEBOOK), 0.5, 0.5, {"queue": second[0], "priority": second[1]})
    assert stage.runs("grows", "other")
    return stage


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize(
    ("quota", "first", "second"),
    [
        (2.0, ("a", 100), ("a", 100)),
        (2.0, ("a", 50), ("b", 100)),
        (2.0, ("a", 50), ("b", 50)),
        (2.0, ("a", 50), ("a", 50)),
        (2.0, ("a", 150), ("a", 100)),
        (0.5, ("a", 50), ("b", 50)),
        (0.0, ("a", 50), ("b", 50)),
    ],
)
def test_with_queues_it_takes_from_nobody_from_whom_a_newcomer_could_not_take_and_keeps_its_own_home(
    quota: float, first: tuple[str, int], second: tuple[str, int], kind: Kind
) -> None:
    stage = in_queues(quota, first=first, second=second, kind=kind)
    with pytest.raises(Problem, match=r"nothing is changed: it would (take the guarantee of another|lose its own)"):
        grows(stage, "grows", 0.75)
    assert grows(stage, "grows", 0.5) == [[0], [0]]


def test_with_queues_it_takes_from_a_queue_above_its_share_and_from_a_lower_priority_of_its_own() -> None:
    assert grows(in_queues(2.0, second=("c", 50)), "grows", 0.75) == [[0], []]
    assert grows(in_queues(2.0, second=("a", 0)), "grows", 0.75) == [[0], []]


def test_with_queues_a_command_that_would_not_come_back_is_not_stopped_for_it() -> None:
    with pytest.raises(Problem, match=r"its own guarantee|the guarantee of another"):
        grows(in_queues(2.0, second=("a", 0), kind=Kind.COMMAND), "grows", 0.75)


def test_with_queues_who_waits_may_ask_for_anything_and_who_asks_for_less_takes_nothing() -> None:
    stage = in_queues(2.0, second=("a", 50))
    stage.notebook("waits", 0.5, queue="a", priority=50)
    assert grows(stage, "waits", 1.0) == [[0], [0], []]
    assert grows(stage, "grows", 0.125) == [[0], [0], []]


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


def test_a_command_that_borrows_starts_again_as_long_as_it_does() -> None:
    """It would stay there, and whoever is promised that GPU would wait for it without end."""
    stage = Stage(2)
    for name in ("alice", "bob"):
        stage.command(name, 0.5, 1.0, requeue=True)
    assert (stage.gpu("bob"), stage.home("bob")) == (1, [0])
    changed = {name: replace(stage.workload(name).spec, requeue=False) for name in ("alice", "bob")}
    check_place(stage.workload("alice"), changed["alice"])
    with pytest.raises(Problem, match="It is on a GPU that is not its home"):
        check_place(stage.workload("bob"), changed["bob"])
    stage.command("whole", 1.0)
    assert (stage.gpu("bob"), stage.home("bob")) == (0, [0])
    check_place(stage.workload("bob"), changed["bob"])


def test_who_has_lost_its_home_and_does_not_start_again_may_be_changed_all_the_same() -> None:
    stage = Stage(1, queues=(Queue("a"), Queue("b", quota={"default": 1.0})))
    stage.command("train", queue="a")
    stage.command("owner", queue="b")
    assert (stage.gpus("train"), stage.home("train")) == ([0], [])
    check_place(stage.workload("train"), replace(stage.workload("train").spec, name="other"))
