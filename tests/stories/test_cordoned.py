"""A node that its cluster has cordoned: idle notebooks leave their GPUs in an order, with their state saved."""

from __future__ import annotations

from test_claims_of_a_cluster import ONE, ZERO, alice_and_bob, at_home, borrower, claim

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import SuspendProcess
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.reasons import Reason, Why
from stage import Stage

IDLE_S = 30.0


def cordon(stage: Stage, *, cordoned: bool = True) -> None:
    stage.node.tell(ev.GpusClaimed(stage.node.now, Claims(cordoned=cordoned)))
    stage.node.settle()


def leaving(stage: Stage) -> str:
    """Who is ordered to leave next; nobody else is."""
    while not stage.node.pending:
        stage.node.fire_timer()
    (order,) = stage.node.pending
    assert isinstance(order, SuspendProcess)
    assert order.reason == Why(Reason.CORDONED, numbers=(IDLE_S,))
    return stage.node.state.workloads[order.workload].spec.name


def leave(stage: Stage, *names: str) -> list[str]:
    """The order in which they do."""
    found = []
    for _ in names:
        found.append(leaving(stage))
        stage.completes(found[-1])
    return found


def test_idle_notebooks_leave_the_borrower_first_and_their_next_cells_bring_them_back() -> None:
    stage = alice_and_bob(cordoned_idle_s=IDLE_S)
    first = borrower(stage)
    second = "alice" if first == "bob" else "bob"
    stage.holds(first, 0.4)  # more to move than the other one has: by harm alone it would be second
    cordon(stage)
    assert stage.runs(first, second)
    assert leave(stage, first, second) == [first, second]
    stage.cell_starts(second)
    assert stage.runs(second)
    assert stage.phase(first) == "suspended"


def test_once_the_node_takes_pods_again_nobody_is_told_any_more_that_it_is_about_to_be_emptied() -> None:
    stage = alice_and_bob(cordoned_idle_s=IDLE_S)
    cordon(stage)
    (first,) = leave(stage, "")
    assert stage.reason(first).kind is Reason.CORDONED
    cordon(stage, cordoned=False)
    assert (stage.phase(first), stage.reason(first)) == ("suspended", Why(Reason.OFF))


def test_one_after_another_and_the_least_harm_first() -> None:
    stage = Stage(1, cordoned_idle_s=IDLE_S)
    sizes = {"big": 0.2, "small": 0.05, "middle": 0.1}
    for name, size in sizes.items():
        stage.notebook(name, 0.25, 0.25, **at_home(ZERO))
        stage.holds(name, size)
    cordon(stage)
    assert leave(stage, *sizes) == ["small", "middle", "big"]


def test_a_running_cell_goes_on_and_a_kept_notebook_stays() -> None:
    stage = Stage(2, cordoned_idle_s=IDLE_S)
    for name in ("busy", "kept"):
        stage.notebook(name, 0.5, 0.5, **at_home(ZERO))
    stage.cell_starts("busy")
    stage.user_keeps("kept", 1000)
    cordon(stage)
    stage.after(900)
    assert stage.runs("busy")
    assert stage.runs("kept")
    assert not stage.plan("busy").yields
    stage.cell_ends("busy")
    stage.after(IDLE_S + 5)
    assert stage.phase("busy") == "suspended"


def test_nobody_moves_for_burst_on_it_and_they_do_again_when_it_is_uncordoned() -> None:
    stage = alice_and_bob(cordoned_idle_s=None)
    claim(stage, Owner("train", "train", (ONE,)))
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)
    cordon(stage)
    stage.after(600)
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0), "without a time nobody leaves, and nobody borrows anew"
    cordon(stage, cordoned=False)
    stage.after(60)
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}


def test_one_that_cannot_be_suspended_keeps_nobody_else_there_and_is_asked_again() -> None:
    stage = Stage(1, cordoned_idle_s=IDLE_S, cool_down_s=30.0)
    for name, size in (("stuck", 0.1), ("other", 0.2)):
        stage.notebook(name, 0.5, 0.5, **at_home(ZERO))
        stage.holds(name, size)
    cordon(stage)
    assert leaving(stage) == "stuck"
    stage.completes("stuck", fail=True)
    assert leave(stage, "other", "stuck") == ["other", "stuck"]


def test_without_a_cordon_nobody_leaves_for_it() -> None:
    stage = alice_and_bob(cordoned_idle_s=IDLE_S)
    stage.after(600)
    assert stage.runs("alice")
    assert stage.runs("bob")
