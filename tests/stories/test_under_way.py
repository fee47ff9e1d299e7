"""Plans made in the middle of a set of moves: who was sent where is known, the story around it is made up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.workload import Move, Phase
from nls_scheduler.core.planning.plan import make_plan
from stage import TOTAL, Stage

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState


def sent(stage: Stage, cause: str | None = None, off: tuple[str, ...] = (), **moves: int) -> NodeState:
    """The node as it would be if these had been sent there, for `cause`; those of `off` have left."""
    by = None if cause is None else stage.workload(cause).id
    moved = []
    for name, gpu in moves.items():
        workload = replace(stage.workload(name), move=Move((stage.uuid(gpu),), by))
        moved.append(replace(workload, phase=Phase.SUSPENDED, current=(), process=None) if name in off else workload)
    return stage.node.state.having(*moved)


def targets(stage: Stage, state: NodeState, *names: str) -> list[int | None]:
    """Where the next plan wants them."""
    entries, gpus = make_plan(state).entries, sorted(state.gpus)
    return [gpus.index(t[0]) if (t := entries[stage.workload(name).id].target) else None for name in names]


def three(*, held: float = 0.1) -> Stage:
    """A notebook on each of three Gpus."""
    stage = Stage(3)
    for number in range(3):
        stage.notebook(f"n{number}", 0.3, 1.0)
        stage.holds(f"n{number}", held)
    assert [stage.gpu(f"n{number}") for number in range(3)] == [0, 1, 2]
    return stage


def test_who_is_off_goes_on_to_where_it_was_sent_though_it_would_burst_more_elsewhere() -> None:
    stage = three()
    assert targets(stage, sent(stage, off=("n0",), n0=1), "n0") == [1]
    assert targets(stage, sent(stage, off=("n0", "n1"), n0=2, n1=2), "n0", "n1") == [2, 2]


def test_who_is_still_there_and_left_for_burst_alone_stays() -> None:
    stage = three()
    assert targets(stage, sent(stage, n0=1), "n0") == [0]


def test_who_is_still_there_stays_when_nobody_needs_its_place() -> None:
    stage = three()
    assert targets(stage, sent(stage, cause="n2", n0=1), "n0") == [0]


def beside_commands() -> Stage:
    """`a` and `b` run cells on GPU 2; `newcomer` waits for one of them; GPU 0 and 1 have room for one of them each."""
    stage = Stage(3)
    stage.command("c0", 0.6)
    stage.command("c1", 0.6)
    for name in "ab":
        stage.notebook(name, 0.3, 1.0)
        stage.cell_starts(name)
    stage.command("newcomer", 0.7)
    assert stage.gpu("a") == stage.gpu("b") == 2
    assert stage.plan("a").bound == stage.uuid(0)
    return stage


def test_who_cannot_go_where_it_was_sent_stays_when_the_others_make_enough_room() -> None:
    stage = beside_commands()
    assert targets(stage, sent(stage, cause="newcomer", a=0, b=1), "a", "b") in ([0, 2], [2, 1])
    stage.command("second", 0.4)
    there = 0 if stage.gpu("second") == 1 else 1
    assert {*targets(stage, sent(stage, cause="newcomer", a=there, b=1 - there), "a", "b")} == {there, 2}


def test_who_moves_for_burst_drives_nobody_out() -> None:
    """n0 was to go to GPU 1, where n1 has come to hold all that is there; n2 holds less."""
    stage = three()
    stage.holds("n1", 0.9)
    stage.holds("n2", 0.7)
    state = sent(stage, off=("n0",), n0=1)
    assert targets(stage, state, "n0", "n1", "n2") == [0, 1, 2]


def test_who_holds_burst_yields_to_one_that_is_owed_the_place_it_was_sent_to() -> None:
    stage = beside_commands()
    stage.notebook("burster", 0.1, 1.0)
    assert stage.gpu("burster") in (0, 1)
    there = stage.gpu("burster") or 0
    stage.allocates("burster", 0.39)
    assert targets(stage, sent(stage, cause="newcomer", a=there), "a") == [there]


def test_only_a_guarantee_drives_somebody_out_not_one_on_the_way_to_burst() -> None:
    """n0 waits longer than `owner`, and holds more than its request; `computes` has to leave for `owner`."""
    stage = Stage(2)
    stage.notebook("n0", 0.3, 1.0)
    stage.notebook("computes", 0.1, 1.0)
    stage.cell_starts("computes")
    stage.holds("n0", 0.5)
    stage.allocates("computes", 0.45)
    stage.command("beside", 0.5)
    assert (stage.gpu("n0"), stage.gpu("beside"), stage.gpu("computes")) == (0, 0, 1)
    owner = stage.node.submit(name="owner", request_bytes=int(0.6 * TOTAL), limit_bytes=TOTAL)
    entry = make_plan(sent(stage, off=("n0",), n0=1)).entries[stage.workload("computes").id]
    assert (entry.target, entry.cause) == ((stage.uuid(0),), owner)


def test_a_plan_that_is_thrown_away_leaves_no_exchange_of_homes_behind() -> None:
    """`sent` leaves for `coming`, which comes elsewhere after all: it stays, and `back` gets the place it was to get.

    While it was to go there, `back` was to go home instead, where `owner` and `borrower` would have exchanged homes.
    """
    stage = Stage(5, pools=tuple(Pool(name, gpus=(name,)) for name in ("1", "2", "3", "4")))
    stage.command("blocker", 0.75)
    stage.notebook("back", 0.75, pools=("1", "3"))
    stage.user_suspends("back")
    for name in ("borrower", "owner"):
        stage.notebook(name, 0.25, pools=("default", "1"))
    stage.cell_starts("borrower")
    stage.notebook("wide", 0.1, pools=("2",))
    stage.notebook("sent", 0.25, pools=("2", "3"))
    stage.notebook("coming", 0.5, pools=("2", "4"))
    stage.user_migrates("sent", 2)
    stage.holds("sent", 0.75)
    names = ("back", "owner", "borrower", "sent", "coming")
    homes = [stage.home(name) for name in names]
    assert homes == [[1], [1], [0], [2], [2]]
    assert [stage.gpus(name) for name in names] == [[], [1], [1], [2], [4]]
    state = sent(stage, cause="coming", sent=3)
    back = replace(stage.workload("back"), wants_gpu=True, suspend_reason=None, waiting_since=0.0)
    coming = replace(stage.workload("coming"), phase=Phase.SUSPENDED, current=(), process=None, waiting_since=0.0)
    state = state.having(back, coming)
    assert targets(stage, state, *names) == [3, 1, 1, 2, 4]
    entries = make_plan(state).entries
    assert [[int(uuid[-1]) for uuid in entries[stage.workload(name).id].home] for name in names] == homes


def test_a_daemon_that_starts_again_in_the_middle_of_a_set_of_moves_goes_on_with_it() -> None:
    """With GPU 0 free for n0 again, only what was chosen before sends it to GPU 1."""
    stage = three()
    state = sent(stage, off=("n0",), n0=1)
    stage.node.workloads[stage.workload("n0").id].process = None
    stage.node.state = state.having(replace(state.workloads[stage.workload("n0").id], waiting_since=stage.node.now))
    stage.node.go_down()
    stage.node.come_back()
    assert stage.workload("n0").move == Move((stage.uuid(1),), None)
    assert stage.plan("n0").target == (stage.uuid(1),)
