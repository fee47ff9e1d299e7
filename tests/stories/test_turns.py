from __future__ import annotations

import pytest

from stage import Stage


def rivals(request: float = 0.5, **policy: object) -> Stage:
    """Two notebooks on one Gpu that hold 0.7 of it each: bob's turn came last."""
    stage = Stage(1, **{"min_residency_s": 2.0, "residency_per_move": 0.0, **policy})
    for name in ("alice", "bob"):
        stage.notebook(name, request)
        stage.after(5)
        stage.cell_starts(name)
        stage.holds(name, 0.7)
        stage.cell_ends(name)
        stage.after(5)
    assert stage.runs("bob")
    assert stage.phase("alice") == "suspended"
    return stage


def test_an_idle_notebook_yields_to_a_cell_that_waits_and_comes_back_with_its_own() -> None:
    stage = rivals()
    stage.cell_starts("alice")
    assert stage.runs("alice")
    assert stage.phase("bob") == "suspended"
    assert stage.reason("bob") == "alice needs GPU 0"
    stage.cell_ends("alice")
    stage.after(5)
    stage.cell_starts("bob")
    assert stage.runs("bob")


def test_who_waits_for_burst_reads_both_sizes() -> None:
    stage = rivals()
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    assert "its saved state of 11.2 GiB is more than its request of 8 GiB" in stage.reason("alice")
    assert "GPU 0 is held by bob, whose turn ends first" in stage.reason("alice")
    assert stage.cause("alice") == "bob"


def test_a_running_cell_is_never_stopped_for_somebody_s_burst() -> None:
    stage = rivals()
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    stage.after(3600)
    assert stage.runs("bob")
    assert stage.plan("bob").yields
    assert stage.reason("bob") == "yields GPU 0 to alice when its cell ends"
    stage.cell_ends("bob")
    assert stage.runs("alice")
    assert "stop" not in stage.orders("bob")


def test_a_holder_keeps_its_gpu_for_its_residency() -> None:
    stage = rivals(min_residency_s=10.0)
    stage.after(5)
    stage.cell_starts("alice")
    assert stage.runs("alice")
    stage.cell_ends("alice")
    stage.cell_starts("bob")
    assert stage.phase("bob") == "suspended"
    stage.after(9)
    assert stage.runs("alice")
    stage.after(2)
    assert stage.runs("bob")


def test_without_a_cell_that_waits_nobody_is_driven_out() -> None:
    stage = rivals()
    stage.user_resumes("alice")
    stage.after(3600)
    assert stage.runs("bob")
    assert "it comes back when there is room or its next cell runs" in stage.reason("alice")


def test_who_is_away_comes_back_by_itself_when_there_is_room() -> None:
    stage = rivals()
    stage.user_resumes("alice")
    stage.ends("bob")
    assert stage.runs("alice")


def test_a_notebook_that_its_user_suspended_stays_away_until_its_next_cell() -> None:
    stage = Stage(1)
    stage.notebook("book")
    stage.user_suspends("book")
    assert stage.phase("book") == "suspended"
    assert stage.reason("book") == "suspended by its user"
    stage.after(600)
    assert stage.phase("book") == "suspended"
    stage.cell_starts("book")
    assert stage.runs("book")


def test_a_notebook_that_its_user_resumed_comes_back_without_a_cell() -> None:
    stage = Stage(1)
    stage.notebook("book")
    stage.user_suspends("book")
    stage.user_resumes("book")
    assert stage.runs("book")


def test_a_cell_that_gives_up_waiting_leaves_its_notebook_suspended() -> None:
    stage = rivals()
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    assert stage.position("alice") == 1
    stage.cell_ends("alice")
    assert stage.position("alice") is None
    stage.cell_ends("bob")
    stage.after(60)
    assert stage.runs("bob")
    assert stage.phase("alice") == "suspended"


def test_a_third_notebook_within_its_request_runs_beside_those_who_take_turns() -> None:
    stage = rivals(0.4)
    stage.notebook("carol", 0.0625)
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    stage.after(1)
    assert stage.runs("carol", "bob")
    stage.cell_ends("bob")
    assert stage.runs("alice", "carol")


@pytest.mark.parametrize("request_", [1.0, 0.75])
def test_who_has_waited_longest_for_what_is_promised_twice_is_next_whoever_came_first(request_: float) -> None:
    stage = Stage(1, oversubscribe=3.0)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, request_)
        stage.cell_starts(name)
        stage.cell_ends(name)
        stage.after(100)
    stage.cell_starts("carol")
    assert stage.runs("carol")
    for name in ("bob", "alice"):
        stage.cell_starts(name)
        stage.after(1)
    assert (stage.position("bob"), stage.position("alice")) == (1, 2)
    stage.cell_ends("carol")
    stage.after(60)
    assert stage.runs("bob")
