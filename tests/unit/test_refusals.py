"""A plan is checked again when it is carried out: what would break a promise is refused, and said once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core import step as steps
from nls_scheduler.core.invariants import InvariantError
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.codec import decode, encode
from nls_scheduler.core.model.commands import ReportRefusal, SetTimer, WorkloadCommand
from nls_scheduler.core.model.ids import ProcessId
from nls_scheduler.core.model.reasons import NOTHING
from nls_scheduler.core.model.workload import Frozen, Order, Phase
from nls_scheduler.core.orders import next_order, who_would_stay
from nls_scheduler.core.orders.refusals import refusal
from nls_scheduler.core.planning.plan import Plan, make_plan, targets_in
from stage import TOTAL, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.state import NodeState

    Wrong = Callable[[Stage], dict[str, dict[str, object]]]


def believes_in_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a step does that has lost sight of what is there in fact."""
    for name in ("has_room", "have_room"):
        monkeypatch.setattr(next_order, name, lambda *_: True)


def plans(monkeypatch: pytest.MonkeyPatch, stage: Stage, **wrong: dict[str, object]) -> None:
    """From now on the planner has a defect: these entries of the plan are changed so."""

    def wrongly(state: NodeState) -> Plan:
        plan = make_plan(state)
        changed = {stage.workload(n).id: replace(stage.plan(n), **fields) for n, fields in wrong.items()}  # type: ignore[arg-type]
        return replace(plan, entries={**plan.entries, **changed})

    monkeypatch.setattr(steps, "make_plan", wrongly)
    targets = {stage.workload(n).id: fields["target"] for n, fields in wrong.items() if "target" in fields}
    monkeypatch.setattr(who_would_stay, "targets_in", lambda state: ({**targets_in(state)[0], **targets}, frozenset()))


def next_step(stage: Stage) -> tuple[NodeState, list[Command]]:
    state, commands = steps.step(stage.node.state, ev.TimerFired(stage.node.now))
    return state, [command for command in commands if not isinstance(command, SetTimer)]


def one_waits(gpus: int = 2, **wanted: object) -> Stage:
    """`holder` has GPU 0, a whole one; `waiter`, a command, is in line for want of a Gpu."""
    stage = Stage(gpus)
    stage.command("holder")
    stage.command("blocker")
    stage.command("waiter", **wanted)
    assert (stage.gpu("holder"), stage.gpu("blocker"), stage.phase("waiter")) == (0, 1, "queued")
    return stage


def onto(gpu: int, at_home: int | None = None) -> Wrong:
    def wrong(stage: Stage) -> dict[str, dict[str, object]]:
        home = (stage.uuid(gpu if at_home is None else at_home),)
        return {"waiter": {"target": (stage.uuid(gpu),), "home": home, "allowance_bytes": TOTAL}}

    return wrong


STARTS: dict[str, tuple[dict[str, object], Wrong]] = {
    "the requests on GPU 0 would be more than it has": ({}, onto(0)),
    "GPU 0 is not its home, and it may not borrow": ({}, onto(0, at_home=1)),
    "it asks for 2 to 2 GPUs, and would have 1": ({"gpu_count": 2}, onto(0)),
    "it is not admitted": ({}, lambda stage: {"waiter": {"target": (stage.uuid(0),), "home": ()}}),
}


@pytest.mark.parametrize("why", STARTS)
def test_a_start_that_would_break_a_promise_is_refused(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, wrong = STARTS[why]
    stage = one_waits(**wanted)
    believes_in_room(monkeypatch)
    plans(monkeypatch, stage, **wrong(stage))
    state, commands = next_step(stage)
    waiter = state.workloads[stage.workload("waiter").id]
    assert commands == [ReportRefusal(waiter.id, Order.START, why)]
    assert (waiter.phase, waiter.pending, waiter.refused) == (Phase.QUEUED, None, why)
    assert decode(encode(commands[0])) == commands[0]


def a_small_one_waits(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """GPU 0 is full with what `holder` holds above its request; `waiter` is to start there all the same."""
    stage = Stage(2)
    stage.notebook("holder", 0.25)
    stage.command("blocker", 1.0)
    stage.notebook("waiter", 0.5)
    stage.user_suspends("waiter")
    stage.holds("holder", 1.0)
    assert (stage.gpu("holder"), stage.gpu("blocker"), stage.phase("waiter")) == (0, 1, "suspended")
    believes_in_room(monkeypatch)
    return stage


def test_a_start_without_room_in_fact_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = a_small_one_waits(monkeypatch)
    plans(monkeypatch, stage, **onto(0)(stage))
    assert [c.why for c in next_step(stage)[1] if isinstance(c, ReportRefusal)] == ["GPU 0 has no room for it in fact"]


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ({"healthy": False}, "GPU 0 is out of service, or its memory is not known"),
        ({"memory_used_bytes": None}, "GPU 0 is out of service, or its memory is not known"),
        ({"unplaced": (ProcessId(1, 1),)}, "GPU 0 is not lent"),
    ],
)
def test_a_start_where_nothing_may_start_is_refused(gpu: dict[str, object], why: str) -> None:
    stage = Stage(2)
    stage.notebook("alice")
    state = stage.node.state
    alice = replace(stage.workload("alice"), phase=Phase.SUSPENDED, current=(), process=None, home=(stage.uuid(1),))
    entry = replace(stage.plan("alice"), home=alice.home, target=(stage.uuid(0),))
    changed = replace(state.gpus[stage.uuid(0)], **gpu)  # type: ignore[arg-type]
    state = replace(state, gpus={**state.gpus, changed.uuid: changed}, plan={alice.id: entry}).having(alice)
    assert refusal(state, alice, entry, Order.START) == why


def test_what_is_refused_is_said_once_and_ordered_when_the_plan_is_right_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = one_waits()
    with monkeypatch.context() as defect:
        believes_in_room(defect)
        plans(defect, stage, **onto(0)(stage))
        stage.node.state, commands = next_step(stage)
        assert len(commands) == 1
        stage.node.state, commands = next_step(stage)
        assert commands == []
    stage.ends("holder")
    assert stage.runs("waiter")
    assert stage.workload("waiter").refused is None


def test_a_gang_of_which_one_would_break_a_promise_does_not_start_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(2)
    stage.command("blocker")
    stage.gang("red", 2)
    assert [stage.phase(f"red-{n}") for n in range(2)] == ["queued", "queued"]
    believes_in_room(monkeypatch)
    there = {"target": (stage.uuid(1),), "home": (stage.uuid(1),), "allowance_bytes": TOTAL}
    plans(monkeypatch, stage, **{"red-0": there, "red-1": there})
    _, commands = next_step(stage)
    assert {type(command) for command in commands} == {ReportRefusal}
    assert len(commands) == 2


def one_that_runs(kind: str) -> Stage:
    stage = Stage(2)
    if kind == "cell":
        stage.notebook("victim")
        stage.cell_starts("victim")
    else:
        stage.command("victim", 0.5, 1.0)
    return stage


@pytest.mark.parametrize("kind", ["cell", "command"])
def test_a_running_cell_or_command_is_not_stopped_by_a_deadline_out_of_the_blue(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = one_that_runs(kind)
    plans(monkeypatch, stage, victim={"target": (), "deadline_at": stage.node.now - 1.0})
    state, commands = next_step(stage)
    victim = state.workloads[stage.workload("victim").id]
    assert [c for c in commands if isinstance(c, WorkloadCommand)] == []
    assert victim.refused == "it runs, and was not told of its deadline in time"
    assert victim.phase is Phase.RUNNING


@pytest.mark.parametrize("kind", ["cell", "command"])
def test_what_runs_is_stopped_at_a_deadline_that_it_was_told_and_not_before(kind: str) -> None:
    stage = one_that_runs(kind)
    state, at = stage.node.state, stage.node.state.at
    victim = replace(stage.workload("victim"), told_since=at - 100.0)
    said = {
        deadline_at: refusal(state, victim, replace(stage.plan("victim"), deadline_at=deadline_at), Order.STOP)
        for deadline_at in (None, at + 1.0, at)
    }
    too_early = "it runs, and its deadline has not come"
    assert said == {None: too_early, at + 1.0: too_early, at: None}
    released = replace(victim, release_reason="released by its user")
    assert refusal(state, released, stage.plan("victim"), Order.STOP) is None


def test_a_running_cell_is_never_suspended_and_not_interrupted_without_a_deadline() -> None:
    stage = one_that_runs("cell")
    victim, entry = stage.workload("victim"), stage.plan("victim")
    assert refusal(stage.node.state, victim, entry, Order.SUSPEND) == "a cell runs, and would be cut off"
    assert refusal(stage.node.state, victim, entry, Order.INTERRUPT) == "it runs, and nobody sets it a deadline"
    assert refusal(stage.node.state, replace(victim, cell_since=None), entry, Order.SUSPEND) is None


def test_a_cell_that_stands_still_goes_on_only_where_there_is_room_in_fact() -> None:
    stage = one_that_runs("cell")
    gpu = stage.workload("victim").current
    frozen = Frozen(gpu, TOTAL // 2, 1.0, NOTHING)
    victim = replace(stage.workload("victim"), phase=Phase.SUSPENDED, current=(), frozen=frozen)
    state, entry = stage.node.state.having(victim), stage.plan("victim")
    assert refusal(state, victim, entry, Order.THAW) is None
    full = replace(state, gpus={**state.gpus, gpu[0]: replace(state.gpus[gpu[0]], unplaced_bytes=TOTAL * 3 // 4)})
    assert refusal(full, victim, entry, Order.THAW) == "GPU 0 has no room for it in fact"
    broken = replace(state, gpus={**state.gpus, gpu[0]: replace(state.gpus[gpu[0]], healthy=False)})
    assert refusal(broken, victim, entry, Order.THAW) == "its GPU is out of service, or its memory is not known"


def test_a_running_cell_is_not_frozen_without_a_deadline() -> None:
    stage = one_that_runs("cell")
    victim, entry = stage.workload("victim"), stage.plan("victim")
    assert refusal(stage.node.state, victim, entry, Order.FREEZE) == "it runs, and nobody sets it a deadline"


def test_in_every_history_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = one_waits()
    believes_in_room(monkeypatch)
    plans(monkeypatch, stage, waiter={"target": (stage.uuid(0),), "home": (stage.uuid(1),), "allowance_bytes": TOTAL})
    with pytest.raises(InvariantError, match="what was planned is refused"):
        stage.node.tell(ev.TimerFired(stage.node.now))
