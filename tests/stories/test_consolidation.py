from __future__ import annotations

import pytest

from connections import pairs
from nls_scheduler.core.model import events as ev
from stage import Stage


def halves(stage: Stage, *held: float) -> None:
    """Guaranteed notebooks of half a Gpu, two of them on each, which hold so much; every second one ends."""
    for number, share in enumerate(held):
        stage.notebook(f"n{number}", 0.5, 0.5)
        stage.notebook(f"x{number}", 0.5, 0.5)
        stage.after(1)
        stage.holds(f"n{number}", share)
    for number in range(len(held)):
        stage.ends(f"x{number}")


def test_a_whole_gpu_is_freed_by_moving_the_fewest_bytes() -> None:
    stage = Stage(3)
    halves(stage, 0.4, 0.1, 0.3)
    stage.command("whole")
    assert stage.runs("whole", "n0", "n1", "n2")
    assert stage.gpu("whole") == 1
    assert [stage.orders(f"n{n}") for n in range(3)] == [["start"], ["start", "suspend", "start"], ["start"]]


def test_among_equals_the_latest_arrival_moves() -> None:
    stage = Stage(3)
    halves(stage, 0.2, 0.2, 0.2)
    stage.command("whole")
    assert stage.gpu("whole") == 2
    assert stage.orders("n0") == stage.orders("n1") == ["start"]


def test_two_gpus_are_freed_with_nvlink_between_them() -> None:
    """0 and 2 would be cheaper; 0 and 1 are linked."""
    stage = Stage(4, pairs((0, 1), (2, 3)))
    halves(stage, 0.1, 0.3, 0.2, 0.4)
    stage.command("double", gpu_count=2)
    assert stage.runs("double", "n0", "n1", "n2", "n3")
    assert stage.gpus("double") == [0, 1]


def test_one_that_is_away_changes_its_home_for_nothing_however_much_it_has_saved() -> None:
    stage = Stage(2)
    halves(stage, 0.45, 0.1)
    stage.user_suspends("n0")
    stage.command("whole")
    assert (stage.gpu("whole"), stage.home("n0")) == (0, [1])
    assert stage.orders("n1") == ["start"]
    stage.user_resumes("n0")
    assert stage.gpu("n0") == 1


def test_a_free_gpu_is_taken_and_nobody_moves() -> None:
    stage = Stage(3)
    halves(stage, 0.4, 0.1)
    stage.command("whole")
    assert stage.gpu("whole") == 2
    assert stage.orders("n0") == stage.orders("n1") == ["start"]


def test_smaller_ones_give_way_in_turn_where_that_is_the_only_way() -> None:
    """5 of 16 on each of three; 11 more fit only where the smaller one next to a free quarter moves."""
    stage = Stage(2)
    stage.notebook("large", 0.5, 0.5)
    stage.notebook("small", 0.25, 0.25)
    stage.notebook("third", 0.5, 0.5)
    stage.ends("small")
    stage.notebook("quarter", 0.25, 0.25)
    stage.command("half", 0.5)
    assert stage.runs("large", "third", "quarter", "half")


def test_a_smaller_one_gives_way_in_turn_where_that_moves_fewer_bytes() -> None:
    """GPU 0 has a free quarter, GPU 1 too, beside `small`; GPU 2 is freed, if `small` leaves its quarter to `half`."""
    stage = Stage(3)
    for name, size in (("most", 0.75), ("x", 0.25), ("heavy", 0.5), ("small", 0.25), ("y", 0.25), ("half", 0.5)):
        stage.notebook(name, size, size)
    for name, share in (("most", 0.7), ("heavy", 0.45), ("small", 0.02), ("half", 0.05)):
        stage.holds(name, share)
    for name in ("x", "y"):
        stage.ends(name)
    assert [stage.gpu(name) for name in ("most", "heavy", "small", "half")] == [0, 1, 1, 2]
    stage.command("whole")
    assert [stage.gpu(name) for name in ("most", "heavy", "small", "half", "whole")] == [0, 1, 0, 1, 2]
    assert stage.orders("heavy") == stage.orders("most") == ["start"]


@pytest.mark.parametrize(("owner_holds", "borrower_holds", "leaves"), [(0.1, 0.24, "owner"), (0.24, 0.1, "borrower")])
def test_the_smaller_of_one_at_home_and_one_that_borrows_goes(
    owner_holds: float, borrower_holds: float, leaves: str
) -> None:
    """The newcomer needs the room of one of them: if that is the one at home, the two exchange their homes."""
    stage = Stage(2)
    stage.command("blocker", 0.75)
    stage.notebook("borrower", 0.25, 1.0)
    stage.notebook("owner", 0.25, 1.0)
    assert (stage.home("borrower"), stage.gpu("borrower")) == ([0], 1)
    assert (stage.home("owner"), stage.gpu("owner")) == ([1], 1)
    stage.holds("owner", owner_holds)
    stage.holds("borrower", borrower_holds)
    stage.command("newcomer", 0.75)
    assert stage.gpu("newcomer") == 1
    assert {name: stage.gpu(name) for name in ("owner", "borrower")} == {"owner": 1, "borrower": 1} | {leaves: 0}


def test_a_user_moves_a_notebook_where_there_is_room() -> None:
    stage = Stage(2)
    stage.notebook("fixed", 0.5, 0.5)
    stage.notebook("burst", 0.25, 1.0)
    stage.user_migrates("fixed", 1)
    assert stage.gpu("fixed") == 1
    assert stage.workload("fixed").wish is None
    assert stage.orders("fixed") == ["start", "suspend", "start"]


def test_a_user_s_wish_waits_for_the_end_of_the_cell() -> None:
    stage = Stage(2)
    stage.notebook("burst", 0.25, 1.0)
    stage.cell_starts("burst")
    stage.user_migrates("burst", 1)
    assert stage.gpu("burst") == 0
    assert stage.plan("burst").yields
    stage.cell_ends("burst")
    assert stage.gpu("burst") == 1
    stage.after(600)
    assert stage.gpu("burst") == 1


def test_a_wish_breaks_no_guarantee() -> None:
    stage = Stage(2)
    stage.command("whole")
    stage.notebook("fixed", 0.5, 0.5)
    stage.user_migrates("fixed", stage.gpu("whole") or 0)
    assert stage.runs("whole", "fixed")
    assert stage.orders("fixed") == ["start"]


def test_who_may_burst_stays_where_it_is_when_the_gpu_that_its_user_wishes_has_no_room_for_it() -> None:
    stage = Stage(2)
    stage.command("whole")
    stage.notebook("burst", 0.25)
    stage.user_migrates("burst", stage.gpu("whole") or 0)
    assert (stage.runs("burst"), stage.orders("burst")) == (True, ["start"])
    assert stage.plan("burst").target == stage.workload("burst").current


def beside_one_that_is_kept() -> tuple[Stage, int]:
    """`alice`, who has cooled down, on one Gpu, and `bob`, whose user keeps him, on the other; which is that."""
    stage = Stage(2, cool_down_s=30.0)
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    stage.after(100)
    stage.user_keeps("bob", 1000)
    there = stage.gpu("bob")
    assert there is not None
    return stage, there


def test_after_a_move_by_hand_nobody_s_burst_takes_it_elsewhere_until_it_has_cooled() -> None:
    stage, there = beside_one_that_is_kept()
    stage.user_migrates("alice", there)
    stage.after(29)
    assert stage.gpu("alice") == there
    stage.after(2)
    assert stage.gpu("alice") == 1 - there


def test_a_slow_move_by_hand_has_its_cool_down_after_it() -> None:
    stage, there = beside_one_that_is_kept()
    stage.node.tell(ev.MigrateRequested(stage.node.now, stage.workload("alice").id, stage.uuid(there)))
    for _ in ("away", "back"):
        stage.node.now += 20.0
        stage.completes("alice")
    assert (stage.phase("alice"), stage.gpu("alice")) == ("running", there)
    stage.after(29)
    assert stage.gpu("alice") == there
    stage.after(2)
    assert stage.gpu("alice") == 1 - there


def test_a_wish_of_one_that_does_not_run_is_nothing() -> None:
    stage = Stage(2)
    stage.notebook("burst", 0.25, 1.0)
    stage.user_suspends("burst")
    stage.user_migrates("burst", 1)
    assert stage.workload("burst").wish is None
    stage.cell_starts("burst")
    assert stage.gpu("burst") == 0
