"""Several that were chosen together, so that the fewest bytes move, move as they were chosen."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model.reasons import Reason
from stage import TOTAL, Stage


def beside_a_command(executing: bool = False) -> Stage:
    """On GPU 1 are `light`, which holds little, and `heavy`, of lower priority; GPU 0 has room for one of them."""
    stage = Stage(2)
    stage.command("blocker", 0.6)
    stage.notebook("light", 0.2, 1.0, priority=5)
    stage.notebook("heavy", 0.2, 1.0)
    stage.holds("light", 0.05)
    stage.holds("heavy", 0.2)
    assert stage.gpu("light") == stage.gpu("heavy") == 1
    if executing:
        stage.cell_starts("light")
        stage.cell_starts("heavy")
    return stage


def test_fewer_bytes_move_though_another_has_a_lower_priority() -> None:
    stage = beside_a_command()
    stage.command("newcomer", 0.8)
    assert stage.runs("newcomer", "light", "heavy")
    assert [stage.gpu(name) for name in ("newcomer", "light", "heavy")] == [1, 0, 1]
    assert stage.orders("heavy") == ["start"]


def test_each_reads_who_comes_to_the_gpu_that_it_leaves_and_for_whom() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.command("training", 0.5, 1.0, requeue=True)
    stage.notebook("bob", 0.25)
    for name, share in (("alice", 0.06), ("training", 0.5), ("bob", 0.12)):
        stage.holds(name, share)
    assert [stage.gpu(name) for name in ("alice", "training", "bob")] == [0, 1, 1]
    stage._ids["newcomer"] = stage.node.submit(
        name="newcomer", request_bytes=TOTAL * 3 // 4, limit_bytes=TOTAL * 3 // 4
    )
    needs = stage.why(Reason.NEEDED, "newcomer", gpus=[0])
    assert stage.home("newcomer") == [0]
    assert stage.reason("alice") == needs
    assert stage.reason("bob") == stage.why(Reason.NEEDED, "alice", gpus=[1], because=[needs])
    assert (stage.cause("alice"), stage.cause("bob")) == ("newcomer", "newcomer")
    stage.node.settle()
    assert [stage.gpu(name) for name in ("newcomer", "alice", "training", "bob")] == [0, 1, 1, 0]


def test_who_was_chosen_leaves_at_the_end_of_its_cell_whatever_happens_until_then() -> None:
    stage = beside_a_command(executing=True)
    stage.command("newcomer", 0.8)
    assert stage.reason("light") == stage.why(Reason.NEEDED, "newcomer", gpus=[1])
    stage.after(1)
    stage.cell_ends("heavy")
    stage.after(1)
    assert (stage.orders("light"), stage.orders("heavy")) == (["start"], ["start"])
    stage.cell_ends("light")
    assert stage.runs("newcomer", "light", "heavy")
    assert stage.orders("heavy") == ["start"]


def test_who_was_chosen_stays_when_the_newcomer_goes_away() -> None:
    stage = beside_a_command(executing=True)
    stage.command("newcomer", 0.8)
    stage.ends("newcomer")
    stage.cell_ends("light")
    assert (stage.gpu("light"), stage.orders("light")) == (1, ["start"])


def test_who_was_chosen_stays_as_long_as_the_newcomer_cannot_come_to_its_gpu() -> None:
    """A process that has ended does not let go of its memory on GPU 1, which takes nobody new until it does."""
    stage = beside_a_command()
    stage.notebook("gone", 0.1, 0.1)
    assert stage.gpu("gone") == 1
    process = stage.lingers("gone")
    for name in ("light", "heavy"):
        stage.cell_starts(name)
    stage.ends("gone")
    stage.command("newcomer", 0.8)
    assert stage.reason("light") == stage.why(Reason.NEEDED, "newcomer", gpus=[1])
    stage.after(11)
    assert stage.reason("newcomer") == stage.why(Reason.OUT_OF_SERVICE, gpus=[1])
    stage.cell_ends("light")
    stage.after(60)
    assert (stage.gpu("light"), stage.orders("light")) == (1, ["start"])
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("newcomer", "light", "heavy")
    assert [stage.gpu(name) for name in ("newcomer", "light", "heavy")] == [1, 0, 1]


@pytest.mark.parametrize("wish", [False, True])
def test_who_is_on_the_way_goes_on_unless_its_user_wishes_another_place(wish: bool) -> None:
    stage = Stage(3)
    stage.command("blocker", 0.6)
    stage.command("other", 0.6)
    stage.notebook("light", 0.2, 1.0)
    stage.notebook("heavy", 0.4, 1.0)
    stage.holds("light", 0.05)
    stage.holds("heavy", 0.4)
    assert stage.gpu("light") == stage.gpu("heavy") == 2
    stage.cell_starts("light")
    stage.cell_starts("heavy")
    stage.command("newcomer", 0.6)
    bound = stage.plan("light").target
    assert bound in ((stage.uuid(0),), (stage.uuid(1),))
    there = [stage.uuid(0), stage.uuid(1)].index(bound[0])
    if wish:
        stage.user_migrates("light", 1 - there)
    stage.cell_ends("light")
    assert stage.gpu("light") == (1 - there if wish else there)
    assert stage.runs("newcomer", "heavy")


@pytest.mark.parametrize("may_burst", [False, True])
def test_the_fewest_bytes_leave_for_a_newcomer_whether_or_not_it_may_burst(may_burst: bool) -> None:
    stage = Stage(2)
    stage.command("blocker", 0.6)
    for name, held, priority in (("light", 0.05, 5), ("heavy", 0.2, 0)):
        stage.notebook(name, 0.2, 1.0, priority=priority)
        stage.holds(name, held)
        stage.cell_starts(name)
    stage.notebook("new", 0.8, 1.0 if may_burst else 0.8)
    assert stage.plan("light").target != stage.plan("new").target
    assert stage.reason("light") == stage.why(Reason.NEEDED, "new", gpus=[1])
    assert stage.plan("heavy").target == stage.plan("new").target
    assert stage.plan("heavy").deadline_at is None


def test_who_computes_on_while_its_home_is_another_one_reads_for_whom_until_it_leaves() -> None:
    stage = Stage(2)
    for name in ("alice", "gone", "bob"):
        stage.notebook(name, 0.5, 0.5)
    stage.ends("gone")
    for name in ("alice", "bob"):
        stage.cell_starts(name)
    stage.command("whole")
    stage.after(10)
    assert stage.reason("alice") == stage.why(Reason.NEEDED, "whole", gpus=[0])
    assert stage.cause("alice") == "whole"
    stage.after(60)
    assert stage.runs("whole")
    assert stage.reason("alice") == stage.why(Reason.AT_HOME, gpus=[1], shares=[0.5])


def test_who_is_idle_leaves_though_one_that_computes_would_move_fewer_bytes() -> None:
    stage = beside_a_command()
    stage.cell_starts("light")
    stage.command("newcomer", 0.8)
    assert stage.runs("newcomer", "light", "heavy")
    assert [stage.gpu(name) for name in ("newcomer", "light", "heavy")] == [1, 1, 0]
    assert stage.orders("light") == ["start"]
