"""No thrash: moves that serve burst alone are few, however much could be gained."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.planning.places.burst_moves import may_move_from
from stage import Stage


def moves_in_an_hour(**policy: float) -> int:
    """The other Gpu is free for a minute and needed for the next one, all hour long."""
    stage = Stage(2, **policy)
    stage.command("owner 0", 1.0)
    stage.notebook("alice", 0.25, 1.0)
    stage.notebook("bob", 0.25, 1.0)
    stage.user_keeps("alice", 7200)
    moves = 0
    for turn in range(30):
        before = stage.workload("bob").moved_at
        stage.ends(f"owner {turn}")
        stage.after(60)
        moves += stage.workload("bob").moved_at != before
        stage.command(f"owner {turn + 1}", 1.0)
        stage.after(59)
    return moves


def test_a_workload_moves_for_burst_no_more_often_in_an_hour_than_the_policy_says() -> None:
    assert moves_in_an_hour(max_moves_per_hour=1000) == 30
    assert moves_in_an_hour(max_moves_per_hour=6) == 6


def test_nobody_moves_for_no_gain_at_all() -> None:
    stage = Stage(2, min_gain=0.0, cool_down_s=1.0)
    stage.notebook("alice")
    stage.after(600)
    assert stage.orders("alice") == ["start"]


def test_zero_moves_per_hour_means_none_for_burst_and_all_for_a_guarantee() -> None:
    stage = Stage(2, max_moves_per_hour=0)
    stage.command("first", 1.0)
    stage.notebook("alice")
    stage.notebook("bob")
    stage.ends("first")
    stage.after(7200)
    assert stage.gpu("alice") == stage.gpu("bob")
    stage.changes(max_moves_per_hour=12)
    assert stage.gpu("alice") != stage.gpu("bob")
    stage.changes(max_moves_per_hour=0)
    stage.command("training", 1.0)
    assert stage.runs("alice", "bob", "training")


def test_a_move_that_was_put_off_happens_when_the_hour_is_over() -> None:
    stage = Stage(2, max_moves_per_hour=1, cool_down_s=0.0)
    stage.notebook("alice", 0.25, 1.0)
    stage.command("blocker", 1.0)
    stage.notebook("bob", 0.25, 1.0)
    assert stage.gpu("alice") == stage.gpu("bob")
    stage.node.tell(ev.KeepRequested(stage.node.now, stage.workload("alice").id, stage.node.now + 1e6))
    stage.ends("blocker")
    moved_at = stage.workload("bob").moved_at
    assert moved_at is not None
    stage.command("blocker again", 1.0)
    assert stage.gpu("alice") == stage.gpu("bob")
    stage.ends("blocker again")
    stage.after(1800)
    assert stage.gpu("alice") == stage.gpu("bob")
    stage.after(1801)
    assert stage.gpu("alice") != stage.gpu("bob")


def test_a_move_that_was_put_off_waits_for_the_first_of_the_hour_not_for_the_last() -> None:
    stage = Stage(2, max_moves_per_hour=2, cool_down_s=0.0)
    stage.command("blocker 0", 1.0)
    stage.notebook("alice", 0.25, 1.0)
    stage.notebook("bob", 0.25, 1.0)
    stage.user_keeps("alice", 1e6)
    for turn in range(3):
        stage.ends(f"blocker {turn}")
        if turn < 2:
            assert stage.gpu("alice") != stage.gpu("bob")
            stage.after(1200)
            stage.command(f"blocker {turn + 1}", 1.0)
    assert stage.gpu("alice") == stage.gpu("bob")
    assert may_move_from(stage.node.state, stage.workload("bob")) == pytest.approx(3600, abs=1)


def test_where_nobody_ever_moves_for_burst_nobody_wakes_up_for_it() -> None:
    stage = Stage(2, max_moves_per_hour=0)
    stage.command("blocker", 1.0)
    stage.notebook("alice", 0.25, 1.0)
    stage.notebook("bob", 0.25, 1.0)
    stage.ends("blocker")
    stage.after(60)
    assert stage.gpu("alice") == stage.gpu("bob")
    assert stage.node.state.timer_at is None or stage.node.state.timer_at <= stage.node.now


def test_nobody_moves_for_burst_to_where_one_leaves_only_when_its_cell_has_ended() -> None:
    stage = Stage(2)
    stage.command("blocker")
    for name, request in (("idle", 0.375), ("other", 0.125)):
        stage.notebook(name, request)
        stage.cell_starts(name)
    stage.ends("blocker")
    for name, request in (("holder", 0.125), ("wisher", 0.5)):
        stage.notebook(name, request)
        stage.cell_starts(name)
    stage.allocates("holder", 0.5)
    here, there = stage.gpu("wisher"), stage.gpu("idle")
    assert (here, there) == (0, 1)
    stage.user_migrates("wisher", 1)
    stage.cell_ends("idle")
    stage.cell_ends("other")
    stage.after(3600)
    assert [stage.orders(name) for name in ("idle", "other")] == [["start"]] * 2
    stage.cell_ends("wisher")
    stage.after(3600)
    assert stage.gpu("wisher") == 1
    assert stage.runs("idle", "other", "holder")
    assert 0 in (stage.gpu("idle"), stage.gpu("other"))


def test_moves_that_its_user_asks_for_are_no_moves_for_burst() -> None:
    stage = Stage(2, max_moves_per_hour=2)
    stage.notebook("alice")
    for _ in range(4):
        there = 1 - (stage.gpu("alice") or 0)
        stage.user_migrates("alice", there)
        assert stage.gpu("alice") == there
    assert stage.workload("alice").burst_moves == ()


def test_after_a_failed_suspend_of_any_kind_somebody_else_moves_for_burst() -> None:
    stage = Stage(2, cool_down_s=60.0)
    stage.command("blocker", 1.0)
    for name, held in (("light", 0.1), ("heavy", 0.2)):
        stage.notebook(name, 0.25, 1.0)
        stage.holds(name, held)
    light = stage.workload("light").id
    stage.node.tell(ev.SuspendRequested(stage.node.now, light, "suspended by its user"))
    stage.completes("light", fail=True)
    stage.user_resumes("light")
    assert stage.runs("light", "heavy")
    stage.ends("blocker")
    assert (stage.gpu("light"), stage.gpu("heavy")) == (1, 0)
