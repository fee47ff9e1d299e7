"""A plan follows from what has happened: a daemon that has forgotten its last plan decides as one that has not."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from test_histories import Histories
from test_queue_histories import QueueHistories

from effort import examples
from nls_scheduler.core import simulator
from nls_scheduler.core.model.commands import SetTimer, SuspendProcess
from nls_scheduler.core.model.events import TimerFired
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.planning.homes import known
from nls_scheduler.core.planning.homes.assign import assign_homes
from nls_scheduler.core.planning.line import joined
from nls_scheduler.core.planning.plan import make_plan
from stage import TOTAL, Stage, with_one_small_gpu

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from typing import TYPE_CHECKING

from step_latency import departments, history

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is taken with the last plan and all that is remembered of it, and without."""
    step = simulator.step

    def twice(state, event):
        after = step(state, event)
        assert step(replace(state, plan={}, settled=False, remembered=None), event) == after
        return after

    monkeypatch.setattr(simulator, "step", twice)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[NodeState]:
    """The states for which a plan was made."""
    states: list[NodeState] = []
    monkeypatch.setattr("nls_scheduler.core.step.make_plan", lambda state: states.append(state) or make_plan(state))
    return states


def test_samples_of_an_idle_node_make_no_plan(planned: list[NodeState]) -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.command("training")
    stage.node.settle()
    planned.clear()
    for _ in range(3):
        stage.node.now += 1.0
        stage.node.sample()
    assert len(planned) <= 1
    stage.holds("alice", 0.6)
    assert len(planned) > 1


def test_a_cell_that_waits_until_its_notebook_is_admitted_makes_no_plan(planned: list[NodeState]) -> None:
    stage = Stage(1)
    stage.notebook("alice", request=1.0)
    stage.notebook("bob", request=1.0)
    stage.node.settle()
    stage.cell_starts("alice")
    planned.clear()
    stage.cell_starts("bob")
    assert stage.workload("bob").cell_waits
    assert not planned
    stage.cell_ends("alice")
    assert planned


def test_a_cell_makes_no_plan_where_nobody_is_to_leave_or_may_be_moved(planned: list[NodeState]) -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("erin", request=1.0)
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob")
    assert (stage.gpu("alice"), stage.gpu("erin"), stage.phase("bob")) == (0, 1, "queued")
    stage.after(1)
    planned.clear()
    stage.cell_starts("erin")
    stage.cell_ends("erin")
    assert not planned
    stage.cell_ends("alice")
    assert planned
    stage.node.settle()
    planned.clear()
    stage.cell_starts("erin")
    assert planned, "nobody is on the way to a Gpu: idle ones may be moved for burst"


def test_homes_are_found_again_only_when_something_has_changed_on_which_they_depend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = []
    monkeypatch.setattr(known, "assign_homes", lambda *given: rounds.append(given) or assign_homes(*given))
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    stage.node.settle()
    rounds.clear()
    stage.cell_starts("alice")
    stage.holds("alice", 0.6)
    stage.cell_ends("alice")
    stage.node.settle()
    assert not rounds
    stage.command("training")
    assert rounds


HALF = {"default": 0.5}


@pytest.mark.parametrize(
    "queues",
    [
        (),
        (Queue("a", quota=HALF), Queue("b", quota=HALF)),
        (Queue("a", limit=HALF), Queue("b", limit=HALF)),
    ],
)
def test_a_newcomer_for_whom_there_is_no_home_as_for_others_before_it_makes_no_plan(
    planned: list[NodeState], queues: tuple[Queue, ...]
) -> None:
    stage = Stage(1, starvation_s=600.0, queues=queues)
    names = ("a", "b") if queues else ("default",)
    for number in range(8):
        stage.notebook(f"early-{number}", queue=names[number % len(names)])
    planned.clear()
    for number in range(20):
        stage.node.now += 0.01
        stage.notebook(f"late-{number}", queue=names[number % len(names)])
    assert not planned
    places = [stage.position(f"late-{number}") for number in range(20)]
    for queue in range(len(names)):
        assert places[queue :: len(names)] == sorted(places[queue :: len(names)])
    assert stage.position("early-6") < places[0]
    assert sorted(entry.position for entry in stage.node.state.plan.values() if entry.position) == list(range(1, 27))
    assert stage.reason("late-19") == stage.reason(f"late-{len(names) - 1}")


def test_a_newcomer_before_others_in_the_line_changes_their_places_only(planned: list[NodeState]) -> None:
    stage = Stage(1, starvation_s=600.0)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, request=1.0, priority=5)
    stage.notebook("dave", request=0.5)
    planned.clear()
    stage.notebook("erin", request=1.0, priority=5)
    assert [stage.position(name) for name in ("bob", "carol", "erin", "dave")] == [1, 2, 3, 4]
    assert not planned
    stage.notebook("frank", request=0.5, priority=5)
    assert planned


def test_a_newcomer_comes_before_who_has_a_home_and_only_waits_for_a_turn(planned: list[NodeState]) -> None:
    stage = Stage(1, oversubscribe=2.0, starvation_s=600.0)
    for name in ("alice", "bob"):
        stage.notebook(name, request=1.0)
        stage.cell_starts(name)
    for name in ("carol", "dave"):
        stage.notebook(name, request=1.0, priority=5)
    planned.clear()
    stage.notebook("erin", request=1.0, priority=5)
    assert [stage.position(name) for name in ("carol", "dave", "erin", "bob")] == [1, 2, 3, 4]
    assert not planned


@pytest.mark.usefixtures("both_ways")
def test_who_was_the_last_keeps_room_free_in_time_when_another_has_joined() -> None:
    stage = Stage(1, starvation_s=60.0)
    for name, priority in (("alice", 0), ("bob", 0), ("carol", 5), ("dave", 0)):
        stage.notebook(name, request=1.0, priority=priority)
        stage.after(1)
    assert stage.node.state.timer_at == 61.0


@pytest.mark.usefixtures("both_ways")
def test_a_newcomer_keeps_room_free_in_time_although_who_asks_for_the_same_has_starved() -> None:
    stage = Stage(1, starvation_s=60.0)
    stage.notebook("alice", request=1.0)
    stage.notebook("bob", request=2.0, limit=2.0, priority=5)
    stage.notebook("carol", request=2.0, limit=2.0)
    stage.after(100)
    stage.notebook("dave", request=2.0, limit=2.0, priority=5)
    assert stage.node.state.timer_at == 160.0


def test_only_behind_one_who_has_found_no_home_it_is_known_that_there_is_none() -> None:
    """Room that is kept for that one is kept from those behind it."""
    stage = Stage(1)
    stage.notebook("alice", request=1.0)
    stage.notebook("m", request=1.0)
    state, waits = stage.node.state, stage.workload("m")
    remembered = state.remembered
    assert isinstance(remembered, known.KnownHomes)
    assert remembered.why_in_vain(state, replace(waits, id=WorkloadId("z"))) == stage.reason("m")
    for earlier in ({"id": WorkloadId("a")}, {"id": WorkloadId("z"), "submitted_at": waits.submitted_at - 1.0}):
        assert remembered.why_in_vain(state, replace(waits, **earlier)) is None


def test_a_newcomer_with_whom_its_queue_is_owed_more_helps_who_waits_before_it() -> None:
    """It asks for the same as that one, and what the queue asks for is what others have to give up."""
    stage = Stage(2, queues=(Queue("a", quota={"default": 1.0}), Queue("b", quota={"default": 1.0})))
    for name in ("alice", "anna"):
        stage.notebook(name, request=0.6, queue="a")
    stage.notebook("bob", request=0.5, queue="b")
    stage.notebook("arthur", request=1.0, queue="a")
    assert not stage.workload("bob").home
    stage.notebook("bill", request=0.5, queue="b")
    assert stage.workload("bob").home
    assert sum(bool(stage.workload(name).home) for name in ("alice", "anna")) == 1


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("queues", [False, True])
def test_in_a_long_line_the_last_plan_changes_nothing(monkeypatch: pytest.MonkeyPatch, queues: bool) -> None:
    joins: list[bool] = []

    def noted(state: NodeState, newcomer: Workload) -> Mapping[WorkloadId, PlanEntry] | None:
        plan = joined(state, newcomer)
        joins.extend([] if plan is None else [any(entry is not plan[key] for key, entry in state.plan.items())])
        return plan

    monkeypatch.setattr("nls_scheduler.core.step.joined", noted)
    for seed in range(examples(5)):
        _line(random.Random(seed), queues)
    assert len(joins) > 5 * examples(5)
    assert any(joins)


def _line(chance: random.Random, queues: bool) -> None:
    """Users come and go where there is room for few of them; some have waited long before that ends."""
    gpus, limit = chance.choice((1, 2, 3)), chance.choice(({}, {}, {"default": 0.5}))
    two = (Queue("a", quota={"default": gpus / 2}, limit=limit), Queue("b", quota={"default": gpus / 2}))
    two = chance.choice((two, departments(gpus).queues))
    stage = Stage(gpus, starvation_s=chance.choice((2.0, 30.0, 600.0)), queues=two if queues else ())
    leaves = [q.name for q in two if all(other.parent != q.name for other in two)] if queues else ["default"]
    few = [(request, chance.choice((request, 1.0)), chance.choice((0, 0, 5))) for request in (0.3, 0.5, 0.5, 0.75, 1.0)]
    names: list[str] = []
    for number in range(120):
        stage.node.now += chance.choice((0.0, 0.01, 0.01, 0.5))
        name, what = f"user-{number}", chance.random()
        if what < 0.8 or not names:
            request, limit, priority = chance.choice(few)
            stage.notebook(name, request, limit, priority=priority, queue=chance.choice(leaves))
            names.append(name)
        elif what < 0.84:
            stage.gang(name, 2, request=0.5, queue=leaves[0])
        elif what < 0.9:
            stage.cell_starts(chance.choice(names))
        elif what < 0.95:
            stage.user_suspends(chance.choice(names[:4]))
        else:
            stage.ends(names.pop(chance.randrange(len(names))))


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("queues", [False, True])
def test_on_a_crowded_node_the_last_plan_changes_nothing(queues: bool, seed: int) -> None:
    assert history(4, 28, examples(450), departments(4) if queues else None, seed)


@pytest.mark.long("a crowded node, each step held against every sentence")
@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_on_a_crowded_node_no_deadline_slides(seed: int) -> None:
    """Among the sentences; three who are sent round for one that runs already had one that slid with every plan."""
    assert history(4, 28, examples(2400), None, seed)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("machine", [Histories, QueueHistories])
def test_in_random_histories_the_last_plan_changes_nothing(machine: type[Histories]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(12),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


@pytest.fixture
def once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind each step that orders nothing its time comes once more, and nothing is ordered then either."""
    step = simulator.step

    def twice(state, event):
        after, commands = step(state, event)
        if not _orders(commands):
            assert not _orders(step(after, TimerFired(after.at))[1])
        return after, commands

    monkeypatch.setattr(simulator, "step", twice)


def _orders(commands: Iterable[Command]) -> list[Command]:
    return [command for command in commands if not isinstance(command, SetTimer)]


@pytest.mark.usefixtures("once_more")
@pytest.mark.parametrize("seed", [2, 3])
def test_on_a_crowded_node_nothing_waits_for_another_event(seed: int) -> None:
    assert history(4, 28, examples(450), None, seed)


@pytest.mark.usefixtures("once_more")
def test_whose_home_is_found_with_moves_waits_for_no_other_event() -> None:
    """Its home is known from this step on, and with it since when others are to leave for it."""
    for seed in range(examples(150)):
        chance = random.Random(seed)
        stage = Stage(2, with_one_small_gpu)
        names = [f"user-{number}" for number in range(4)]
        for name in names:
            stage.notebook(name, chance.choice((0.025, 0.1, 0.3, 0.5)), chance.choice((0.5, 1.0)))
            stage.cell_starts(name)
            if stage.runs(name):
                stage.holds(name, chance.uniform(0.1, 0.4), cached=chance.uniform(0.0, 0.6))
            if chance.random() < 0.5:
                stage.cell_ends(name)
            stage.after(chance.choice((1, 60)))


@pytest.mark.usefixtures("both_ways")
def test_a_suspend_for_which_a_guarantee_waits_is_given_up_by_no_daemon_that_has_forgotten_its_plan() -> None:
    """It takes longer than suspends may that nobody waits for; at its deadline the process is stopped."""
    stage = Stage(1, suspend_timeout_s=5.0, reclaim_deadline_s=60.0)
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.node.submit(name="training", kind=Kind.COMMAND, request_bytes=TOTAL // 2, limit_bytes=TOTAL // 2)
    stage.completes("alice")  # a trim, which frees nothing
    assert isinstance(stage.pending("alice"), SuspendProcess)
    stage.node.now += 10.0
    stage.node.sample()
    assert isinstance(stage.pending("alice"), SuspendProcess)
