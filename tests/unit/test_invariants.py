"""Each sentence of `invariants` says so when a state breaks it: what watches over all other tests can fail."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass, replace
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core import invariants
from nls_scheduler.core.invariants import SENTENCES, InvariantError, broken, check
from nls_scheduler.core.invariants.definitions import brings_bytes
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model import gpu, policy, pools, queues, reasons, spec, state, workload
from nls_scheduler.core.model.commands import (
    EndProcess,
    FreezeProcess,
    InterruptCell,
    StartProcess,
    StopProcess,
    SuspendProcess,
    TrimMemory,
)
from nls_scheduler.core.model.gpu import Releasing
from nls_scheduler.core.model.ids import CommandId, ProcessId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Frozen, Order, Pending, Phase
from stage import TOTAL, Stage

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

Break = tuple["NodeState", "NodeState", tuple["Command", ...]]
NOW = 50.0
GIB = TOTAL // 16


def two() -> Stage:
    """alice at home on GPU 0; bob, at home there too, borrows GPU 1."""
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 1)
    return stage


def record(stage: Stage, name: str, **changes: object) -> NodeState:
    """The state with a workload's record changed."""
    workload = replace(stage.workload(name), **changes)  # type: ignore[arg-type]
    return replace(stage.node.state, workloads={**stage.node.state.workloads, workload.id: workload})


def entry(stage: Stage, name: str, **changes: object) -> NodeState:
    """The state with a workload's entry in the plan changed."""
    changed = replace(stage.plan(name), **changes)  # type: ignore[arg-type]
    return replace(stage.node.state, plan={**stage.node.state.plan, stage.workload(name).id: changed})


def asking(stage: Stage, name: str, **changes: object) -> NodeState:
    return record(stage, name, spec=replace(stage.workload(name).spec, **changes))  # type: ignore[arg-type]


def order(stage: Stage, kind: type, name: str = "alice", reason: str = "so", **more: object) -> tuple[Command, ...]:
    return (kind(stage.node.state.next_command, stage.workload(name).id, reason, None, **more),)


def pending(order: Order) -> Pending:
    return Pending(order, CommandId(7), 0.0, 100.0, "so")


def alone(change: object) -> Break:
    """A state that is wrong whatever was before."""
    return change, change, ()  # type: ignore[return-value]


def a_sentence_is_broken(breaks: Break, says: str) -> None:
    with pytest.raises(InvariantError) as caught:
        check(*breaks)
    assert says in str(caught.value)


def names(step: Break) -> set[str]:
    return {each.sentence for each in broken(*step)}


def test_what_is_in_order_breaks_no_sentence() -> None:
    assert names(alone(two().node.state)) == set()


RECORDS = {
    "home requests on GPU 0 are more": lambda s: asking(s, "bob", request_bytes=TOTAL),
    "is queued with current": lambda s: record(s, "alice", phase=Phase.QUEUED, process=None),
    "is running with current ()": lambda s: record(s, "alice", current=()),
    "is suspended with a process": lambda s: record(s, "alice", phase=Phase.SUSPENDED, current=()),
    "runs without a process": lambda s: record(s, "alice", process=None),
    "runs without a process or with a command": lambda s: record(s, "alice", pending=pending(Order.START)),
    "starting without StartProcess": lambda s: record(s, "alice", phase=Phase.STARTING),
    "suspending without a command": lambda s: record(s, "alice", phase=Phase.SUSPENDING),
    "since when is not known": lambda s: record(s, "alice", phase=Phase.SUSPENDED, current=(), process=None),
    "has one Gpu twice": lambda s: record(s, "alice", current=(s.uuid(0), s.uuid(0))),
    "has no reason": lambda s: entry(s, "alice", reason=None),
    "without being admitted": lambda s: entry(s, "alice", home=()),
    "allowance outside its request and limit": lambda s: entry(s, "alice", allowance_bytes=TOTAL + 1),
    "more requests on GPU 0 than": lambda s: replace(
        asking(s, "bob", request_bytes=TOTAL), plan=entry(s, "bob", target=(s.uuid(0),)).plan
    ),
    "allowances on GPU 0 are more": lambda s: record(s, "bob", current=(s.uuid(0),)),
    "would move for burst, and take from who has less": lambda s: entry(
        s, "bob", target=(s.uuid(0),), reason=Why(Reason.MORE_ROOM)
    ),
    "has a deadline, and no guarantee waits": lambda s: entry(s, "alice", deadline_at=100.0),
    "is to leave by 9.0, and was told at 0.0": lambda s: replace(
        record(s, "alice", told_since=0.0), plan=entry(s, "alice", deadline_at=9.0).plan
    ),
    "is not in the plan": lambda s: replace(s.node.state, plan={}),
}


@pytest.mark.parametrize("says", RECORDS)
def test_a_record_or_an_entry_that_cannot_be_is_said(says: str) -> None:
    a_sentence_is_broken(alone(RECORDS[says](two())), says)


def test_who_comes_where_the_requests_do_not_fit_is_said() -> None:
    stage = two()
    whole = replace(stage.workload("bob").spec, request_bytes=TOTAL)
    state = record(stage, "bob", current=(stage.uuid(0),), spec=whole)
    a_sentence_is_broken((stage.node.state, state, ()), "requests now on GPU 0 are more")


def test_who_asks_for_more_than_fits_beside_the_others_breaks_nothing_while_somebody_leaves() -> None:
    stage = Stage(2)
    for name in ("alice", "bob", "carol", "dave"):
        stage.notebook(name)
    alice = stage.workload("alice")
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, alice.id, replace(alice.spec, request_bytes=TOTAL)))
    stage.node.settle()
    assert stage.runs("alice")
    assert stage.workload("alice").spec.request_bytes == TOTAL


def test_a_sentence_is_known_by_one_name_whoever_breaks_it() -> None:
    stage = two()
    said = [names(alone(record(stage, name, process=None))) for name in ("alice", "bob")]
    assert said[0] == said[1] == {"who_runs_has_a_process_and_no_command"}
    assert len({sentence.__name__ for sentence in SENTENCES}) == len(SENTENCES)


def test_the_sentences_share_no_arithmetic_with_what_they_check() -> None:
    """Of the model they read fields, and no property or method: those are the planner's as well."""
    classes = [c for m in (gpu, policy, pools, queues, spec, state, workload) for c in vars(m).values() if isclass(c)]
    models = [c for c in classes if is_dataclass(c)]
    known = {field.name for c in models for field in fields(c)}
    worked_out = {name for c in models for name in vars(c) if not name.startswith("__")} - known
    assert worked_out >= {"size_bytes", "capacity_bytes", "may_borrow", "kept", "pool_of", "limit_in", "label"}
    for path in Path(invariants.__file__).parent.glob("*.py"):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert {n.attr for n in tree if isinstance(n, ast.Attribute)} & worked_out == set(), path.name


def one_that_waits(**wanted: object) -> Stage:
    stage = Stage(2)
    stage.command("whole", gpu_count=2)
    stage.command("next", **wanted)
    assert stage.phase("next") == "queued"
    return stage


PLANS = {
    "may not borrow, and is to run away": (0, {}),
    "is to start on 1 Gpus": (0, {"gpu_count": 2}),
}


@pytest.mark.parametrize("says", PLANS)
def test_a_start_that_cannot_be_is_said(says: str) -> None:
    gpu, wanted = PLANS[says]
    stage = one_that_waits(**wanted)
    stage.ends("whole")
    stage.ends("next")
    stage = one_that_waits(**wanted)
    state = entry(stage, "next", home=(stage.uuid(1 - gpu),), target=(stage.uuid(gpu),), allowance_bytes=TOTAL)
    a_sentence_is_broken(alone(state), says)


def test_who_may_not_borrow_is_said_to_go_elsewhere_also_from_where_it_is() -> None:
    stage = Stage(2)
    stage.command("stays", 0.5)
    away = (stage.uuid(1 - (stage.gpu("stays") or 0)),)
    a_sentence_is_broken(alone(entry(stage, "stays", target=away)), "may not borrow, and is to run away from home")


def test_one_of_several_on_a_slice_is_said() -> None:
    stage = Stage(2)
    stage.command("whole", gpu_count=2)
    gpus = stage.node.state.gpus
    slices = {uuid: replace(gpu, parent=stage.uuid(0)) for uuid, gpu in gpus.items()}
    a_sentence_is_broken(alone(replace(stage.node.state, gpus=slices)), "spans a slice")


ORDERS = {
    "ids are not consecutive": lambda s: (
        StartProcess(CommandId(99), s.workload("alice").id, "so", None, (s.uuid(0),)),
    ),
    "two commands in one step": lambda s: (*order(s, SuspendProcess), *order(s, SuspendProcess)),
    "has no reason": lambda s: order(s, SuspendProcess, reason=""),
    "is not pending": lambda s: order(s, SuspendProcess),
    "trimmed without a cause": lambda s: order(s, TrimMemory),
}


@pytest.mark.parametrize("says", ORDERS)
def test_an_order_that_cannot_be_is_said(says: str) -> None:
    stage = two()
    a_sentence_is_broken((stage.node.state, stage.node.state, ORDERS[says](stage)), says)


CELLS = {
    "suspended in mid-cell": (SuspendProcess, {}, {}),
    "stopped in mid-cell before any deadline": (StopProcess, {}, {"grace_s": 1.0}),
    "interrupted without a deadline": (InterruptCell, {}, {"grace_s": 1.0}),
    "while its user keeps it": (SuspendProcess, {"keep_until": 1000.0, "cell_since": None}, {}),
}


@pytest.mark.parametrize("says", CELLS)
def test_harm_to_a_running_cell_or_to_one_that_is_kept_is_said(says: str) -> None:
    stage = two()
    kind, changes, more = CELLS[says]
    state = record(stage, "alice", **{"cell_since": 1.0, **changes})
    a_sentence_is_broken((state, state, order(stage, kind, **more)), says)


def test_a_command_that_would_not_start_again_is_said_to_be_stopped_before_any_deadline() -> None:
    stage = Stage(1)
    stage.command("work")
    stage.command("again", requeue=True)
    for name, says in (("work", True), ("again", False)):
        step = (stage.node.state, stage.node.state, order(stage, StopProcess, name, grace_s=1.0))
        assert ("a_command_that_cannot_start_again_is_stopped_at_its_deadline_only" in names(step)) is says


def test_the_rest_of_a_gang_may_be_stopped_and_a_whole_one_may_not() -> None:
    stage = Stage(2)
    stage.gang("red", 2)
    state, commands = stage.node.state, order(stage, StopProcess, "red-0", grace_s=1.0)
    said = "a_command_that_cannot_start_again_is_stopped_at_its_deadline_only"
    assert said in names((state, state, commands))
    gone = record(stage, "red-1", phase=Phase.QUEUED, current=(), process=None, waiting_since=1.0)
    assert said not in names((gone, gone, commands))


@pytest.mark.parametrize(("polls", "says"), [(3.5, True), (4.0, False)])
def test_a_cell_is_stopped_above_its_limit_at_four_samples_and_not_before(polls: float, says: bool) -> None:
    stage = two()
    state = record(stage, "alice", cell_since=1.0, over_limit_polls=polls)
    step = (state, state, order(stage, StopProcess, grace_s=1.0))
    assert ("a_running_cell_is_stopped_at_its_deadline_only" in names(step)) is says


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, True),
        ({"interrupt": replace(pending(Order.INTERRUPT), issued_at=9.0)}, True),
        ({"interrupt": pending(Order.INTERRUPT)}, False),
        ({"over_limit_polls": 4.0}, False),
        ({"release_reason": Why(Reason.NEEDED)}, False),
        ({"cell_since": None}, False),
    ],
)
def test_a_cell_that_is_stopped_and_was_not_interrupted_before_is_said(changes: dict[str, object], says: bool) -> None:
    stage = two()
    state = replace(record(stage, "alice", **{"cell_since": 1.0, **changes}), at=9.0)
    step = (state, state, order(stage, StopProcess, grace_s=1.0))
    assert ("a_cell_is_interrupted_before_it_is_stopped" in names(step)) is says


@pytest.mark.parametrize(("polls", "used", "says"), [(1.0, 0, True), (2.0, TOTAL * 2, True), (1.0, TOTAL * 2, False)])
def test_a_sample_that_counts_more_than_it_is_worth_is_said(polls: float, used: int, says: bool) -> None:
    stage = two()
    state = record(stage, "alice", over_limit_polls=polls, memory_used={stage.uuid(0): used})
    assert ("a_sample_above_the_limit_counts_once" in names((stage.node.state, state, ()))) is says


def test_an_interrupt_long_before_the_deadline_is_said() -> None:
    stage = two()
    state = replace(record(stage, "alice", cell_since=1.0), plan=entry(stage, "alice", deadline_at=100.0).plan)
    a_sentence_is_broken((state, state, order(stage, InterruptCell, grace_s=1.0)), "interrupted long before")


def test_a_cell_that_waits_and_whose_gpu_nothing_brings_back_is_said() -> None:
    stage = two()
    waits = {"phase": Phase.SUSPENDED, "current": (), "process": None, "cell_since": 1.0, "waiting_since": 1.0}
    before, after = record(stage, "alice", **waits), record(stage, "alice", **waits, wants_gpu=False)
    a_sentence_is_broken((before, after, ()), "waits, and nothing brings its Gpu back any more")


def test_a_second_interrupt_is_said() -> None:
    stage = two()
    state = replace(
        record(stage, "alice", cell_since=1.0, interrupt=pending(Order.INTERRUPT)),
        plan=entry(stage, "alice", deadline_at=100.0).plan,
    )
    a_sentence_is_broken((state, state, order(stage, InterruptCell, grace_s=1.0)), "or twice in one cell")


def above_its_request(stage: Stage) -> Workload:
    alice = stage.workload("alice")
    return replace(alice, measured=True, memory_used={stage.uuid(0): TOTAL * 3 // 4}, trimmed_at=20.0)


def test_a_second_trim_for_one_cause_is_said() -> None:
    stage = two()
    alice = above_its_request(stage)
    state = replace(
        stage.node.state,
        workloads={**stage.node.state.workloads, alice.id: alice},
        plan=entry(stage, "alice", trim_since=10.0).plan,
    )
    a_sentence_is_broken((state, state, order(stage, TrimMemory)), "trimmed twice for what began at 10.0")


def test_more_moves_in_an_hour_than_the_policy_allows_are_said() -> None:
    stage = two()
    after = replace(record(stage, "alice", burst_moves=tuple(float(n) for n in range(13))), at=NOW)
    a_sentence_is_broken((stage.node.state, after, order(stage, SuspendProcess)), "moved 13 times for burst alone")


def test_a_start_before_there_is_room_is_said() -> None:
    stage = two()
    full = replace(stage.node.state.gpus[stage.uuid(0)], unplaced_bytes=TOTAL)
    state = replace(stage.node.state, gpus={**stage.node.state.gpus, full.uuid: full})
    commands = order(stage, StartProcess, gpus=(full.uuid,))
    a_sentence_is_broken((state, state, commands), "starts on GPU 0 before there is room")


def test_a_lowered_bound_on_moves_is_no_move() -> None:
    stage = two()
    before = replace(record(stage, "alice", burst_moves=(1.0, 2.0, 3.0)), policy=Policy(max_moves_per_hour=1))
    after = replace(record(stage, "alice", burst_moves=(2.0, 3.0)), policy=before.policy)
    assert "moves_for_burst_are_rare" not in names((before, after, order(stage, SuspendProcess)))


def stands(stage: Stage, **changes: object) -> NodeState:
    """alice's process is frozen."""
    frozen = Frozen((stage.uuid(0),), TOTAL // 2, NOW, reasons.NOTHING)
    off = {"phase": Phase.SUSPENDED, "current": (), "frozen": frozen, "cell_since": 1.0, "waiting_since": 1.0}
    return record(stage, "alice", **{**off, **changes})


@pytest.mark.parametrize("changes", [{"process": None}, {"phase": Phase.RUNNING}, {"phase": Phase.FAILED}])
def test_what_stands_still_without_a_process_or_in_another_phase_is_said(changes: dict[str, object]) -> None:
    stage = two()
    assert "who_stands_still_has_its_process_and_no_gpu" not in names((stands(stage), stands(stage), ()))
    a_sentence_is_broken((stands(stage), stands(stage, **changes), ()), "stands still, is")


@pytest.mark.parametrize(
    "changes",
    [{"process": ProcessId(7, 7)}, {"frozen": None, "pending": Pending(Order.THAW, CommandId(1), 0, 1, "so")}],
)
def test_a_cell_that_goes_on_in_another_process_or_elsewhere_is_said(changes: dict[str, object]) -> None:
    stage = two()
    after = stands(stage, current=(stage.uuid(1),), phase=Phase.STARTING, **changes)
    a_sentence_is_broken((stands(stage), after, ()), "stood still as")


FREEZES = {
    "runs no cell": {"cell_since": None},
    "is frozen without a deadline": {},
    "where that is not allowed, or cannot be done": {"freezable": False},
    "is frozen again, or after its cell was interrupted": {"freeze_trouble": reasons.said("full")},
}


@pytest.mark.parametrize("says", FREEZES)
def test_a_freeze_that_must_not_be_is_said(says: str) -> None:
    stage = two()
    state = record(stage, "alice", **{"cell_since": 1.0, "freezable": True, **FREEZES[says]})
    state = replace(state, policy=Policy(freeze_cells=True))
    a_sentence_is_broken((state, state, order(stage, FreezeProcess, timeout_s=1.0, beside_bytes=0)), says)


def test_a_freeze_where_the_policy_does_not_want_it_is_said() -> None:
    stage = two()
    state = replace(record(stage, "alice", cell_since=1.0, freezable=True), policy=Policy(freeze_cells=False))
    a_sentence_is_broken(
        (state, state, order(stage, FreezeProcess, timeout_s=1.0, beside_bytes=0)), "where that is not allowed"
    )


def test_a_freeze_before_the_interrupt_is_due_breaks_nothing() -> None:
    stage = two()
    planned = entry(stage, "alice", deadline_at=100.0).plan
    state = record(stage, "alice", cell_since=1.0, freezable=True)
    state = replace(state, plan=planned, policy=Policy(freeze_cells=True))
    said = names((state, state, order(stage, FreezeProcess, timeout_s=1.0, beside_bytes=0)))
    assert not said & {"only_a_running_cell_is_frozen", "a_cell_that_could_not_be_frozen_is_not_frozen"}


def test_an_order_to_what_stands_still_is_said() -> None:
    stage = two()
    commands = order(stage, StopProcess, grace_s=1.0)
    a_sentence_is_broken((stands(stage), stands(stage), commands), "stands still and is told StopProcess")


def test_a_kill_of_what_the_driver_may_hold_is_said() -> None:
    stage = two()
    state = record(stage, "alice", phase=Phase.SUSPENDING, perhaps_locked=True, pending=pending(Order.END))
    commands = order(stage, EndProcess, process=ProcessId(1, 1))
    a_sentence_is_broken((state, state, commands), "is killed while the driver may hold its process")


def on_gpu_1(stage: Stage, **changes: object) -> NodeState:
    changed = replace(stage.node.state.gpus[stage.uuid(1)], **changes)  # type: ignore[arg-type]
    return replace(stage.node.state, gpus={**stage.node.state.gpus, changed.uuid: changed})


STARTS = {
    "starts on GPU 1, which is out of service": lambda s: on_gpu_1(s, memory_used_bytes=None),
    "starts on GPU 1, which it may not borrow": lambda s: on_gpu_1(s, unplaced=(ProcessId(1, 1),)),
    "starts on GPU 1, whose pool is not for it": lambda s: asking(s, "bob", pools=("fast",)),
    "and the plan says": lambda s: entry(s, "bob", target=(s.uuid(0),)),
}


@pytest.mark.parametrize("says", STARTS)
def test_a_start_where_it_may_not_be_is_said(says: str) -> None:
    """bob's home is GPU 0."""
    stage = two()
    state, commands = STARTS[says](stage), order(stage, StartProcess, "bob", gpus=(stage.uuid(1),))
    assert says not in str(list(broken(stage.node.state, stage.node.state, commands)))
    a_sentence_is_broken((state, state, commands), says)


def test_a_start_beside_a_process_that_does_not_let_go_is_said() -> None:
    stage = two()
    stuck = Releasing(ProcessId(1, 1), stage.workload("alice").id, 1, -100.0)
    state, commands = on_gpu_1(stage, releasing=(stuck,)), order(stage, StartProcess, "bob", gpus=(stage.uuid(1),))
    a_sentence_is_broken((state, state, commands), "starts on GPU 1, which is out of service")


def test_an_admission_of_one_that_is_not_preemptible_beyond_a_quota_is_said() -> None:
    stage = Stage(2, queues=(Queue("top", quota={"*": 1.0}), Queue("a", parent="top", quota={"default": 1.0})))
    for name in ("first", "second"):
        stage.command(name, queue="a", priority=100)
    assert stage.phase("second") == "queued"
    state = record(stage, "second", home=(stage.uuid(1),))
    a_sentence_is_broken((stage.node.state, state, ()), "with which top is above its quota in firm use")


def test_an_admission_beyond_a_limit_is_said() -> None:
    stage = Stage(2, queues=(Queue("a", limit={"default": 1.0}),))
    for name in ("first", "second"):
        stage.command(name, queue="a")
    assert stage.phase("second") == "queued"
    state = record(stage, "second", home=(stage.uuid(1),))
    a_sentence_is_broken((stage.node.state, state, ()), "with which a is above its limit")


def test_an_admission_beyond_a_limit_is_said_of_who_reports_what_was_known() -> None:
    """A report from Gpus of which the journal knows nothing gives a home there; any other gives none."""
    stage = Stage(2, queues=(Queue("a", limit={"default": 1.0}),))
    for name in ("first", "second"):
        stage.command(name, queue="a")
    before = replace(stage.node.state, unreported=frozenset({stage.workload("second").id}))
    state = record(stage, "second", home=(stage.uuid(1),))
    a_sentence_is_broken((before, state, ()), "with which a is above its limit")
    found = record(stage, "second", home=(stage.uuid(1),), current=(stage.uuid(1),), phase=Phase.RUNNING)
    assert not [each for each in broken(before, found, ()) if "above its limit" in each.instead]
    elsewhere = record(stage, "second", home=(stage.uuid(1),), current=(stage.uuid(0),), phase=Phase.RUNNING)
    a_sentence_is_broken((before, elsewhere, ()), "with which a is above its limit")


def test_homes_and_plans_beyond_a_gpu_are_said_as_soon_as_everybody_has_reported() -> None:
    stage = two()
    gpu = (stage.uuid(0),)
    state = record(stage, "bob", home=gpu, spec=replace(stage.workload("bob").spec, request_bytes=TOTAL))
    plan = {key: replace(each, home=gpu, target=gpu) for key, each in state.plan.items()}
    state = replace(state, plan=plan, unreported=frozenset({stage.workload("alice").id}))
    told = ("home requests on GPU 0 are more than it has", "the plan puts more requests on GPU 0 than it has")
    for quiet, is_said in ((state.at + 1.0, False), (state.at, True)):
        quiet_state = replace(state, quiet_until=quiet)
        said = [each.instead for each in broken(quiet_state, quiet_state, ())]
        assert [any(each.startswith(sentence) for each in said) for sentence in told] == [is_said, is_said]


def test_a_home_from_before_a_lowered_limit_may_stay() -> None:
    stage = Stage(2, queues=(Queue("a"),))
    for name in ("first", "second"):
        stage.command(name, queue="a")
    stage.changes(queues=(Queue("a", limit={"default": 1.0}),))
    assert stage.runs("first", "second")


def half_a_gang() -> Stage:
    stage = Stage(2)
    stage.command("blocker")
    stage.gang("red", 2)
    assert [stage.phase(f"red-{n}") for n in range(2)] == ["queued", "queued"]
    return stage


def test_half_a_gang_that_is_planned_or_admitted_is_said() -> None:
    stage = half_a_gang()
    free = (stage.uuid(1),)
    planned = entry(stage, "red-0", home=free, target=free, allowance_bytes=TOTAL)
    a_sentence_is_broken(alone(planned), "the plan gives Gpus to some of gang red only")
    a_sentence_is_broken(alone(record(stage, "red-0", home=free)), "a part of gang red is admitted")


def test_half_a_gang_that_is_started_is_said() -> None:
    stage = half_a_gang()
    commands = order(stage, StartProcess, "red-0", gpus=(stage.uuid(1),))
    a_sentence_is_broken((stage.node.state, stage.node.state, commands), "a part of gang red is started")


def test_a_running_cell_that_its_user_lets_go_of_breaks_nothing() -> None:
    stage = two()
    stage.cell_starts("alice")
    stage.ends("alice")
    assert not stage.known("alice")
    assert isinstance(stage.node.history[-1][0], ev.MemorySampled)


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({}, 8 * GIB),
        ({"saved_bytes": 4 * GIB}, 8 * GIB),
        ({"saved_bytes": 9 * GIB, "context_bytes": GIB}, 10 * GIB),
        ({"saved_bytes": 20 * GIB}, 20 * GIB),
        ({"frozen": Frozen((), 10 * GIB, NOW, Why(Reason.NEEDED))}, 10 * GIB),
        (
            {"phase": Phase.RUNNING, "unsaved": True, "memory_used": {"GPU-0": 12 * GIB}, "current": ("GPU-0",)},
            12 * GIB,
        ),
    ],
)
def test_what_one_needs_to_come_back(changes: dict[str, object], most: int) -> None:
    stage = two()
    found = record(stage, "alice", **changes).workloads[stage.workload("alice").id]
    assert brings_bytes(found) == most
