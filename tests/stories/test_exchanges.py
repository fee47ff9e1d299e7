"""One that was away comes back to its home, and one of two has to leave: who goes, and whose home is where then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.reasons import Reason
from stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

ANY = ("default", "one")


def one_is_away(
    owner: Mapping[str, object] | None = None, borrower: Mapping[str, object] | None = None, sleeper: float = 0.75,
    **policy: object,
) -> Stage:  # fmt: skip
    """GPU 1 is the home of `owner`, idle, and of `sleeper`, away; `borrower` computes there, its home is GPU 0."""
    stage = Stage(2, **policy)
    stage.command("blocker", 0.75)
    stage.notebook("sleeper", sleeper, sleeper, pools=ANY)
    stage.user_suspends("sleeper")
    stage.notebook("owner", **{"request": 0.25, "pools": ANY, **(owner or {})})  # type: ignore[arg-type]
    stage.notebook("borrower", **{"request": 0.25, "pools": ANY, **(borrower or {})})  # type: ignore[arg-type]
    assert (stage.home("sleeper"), stage.home("owner"), stage.home("borrower")) == ([1], [1], [0])
    assert (stage.gpu("owner"), stage.gpu("borrower")) == (1, 1)
    stage.cell_starts("borrower")
    return stage


def borrower_leaves(stage: Stage) -> bool:
    """Whether `borrower` makes room for `sleeper` at the end of its cell, and nothing happens to `owner`."""
    assert (stage.home("owner"), stage.home("borrower"), stage.phase("sleeper")) == ([1], [0], "suspended")
    assert stage.reason("borrower") == stage.why(Reason.NEEDED, "sleeper", gpus=[1])
    stage.cell_ends("borrower")
    assert stage.runs("sleeper", "owner", "borrower")
    return stage.gpu("borrower") == 0 and stage.orders("owner") == ["start"]


def test_the_idle_one_goes_instead_of_the_borrower_that_computes_and_they_exchange_their_homes() -> None:
    stage = one_is_away()
    stage.cell_starts("sleeper")
    assert stage.runs("sleeper", "owner", "borrower")
    assert [stage.gpu(name) for name in ("sleeper", "owner", "borrower")] == [1, 0, 1]
    assert [stage.home(name) for name in ("sleeper", "owner", "borrower")] == [[1], [0], [1]]
    assert stage.orders("borrower") == ["start"]


def test_a_smaller_one_does_not_go_for_a_larger_borrower() -> None:
    stage = one_is_away({"request": 0.125}, sleeper=0.875)
    stage.cell_starts("sleeper")
    assert borrower_leaves(stage)


def test_a_larger_one_does_not_go_where_the_borrower_s_home_has_no_room_for_it() -> None:
    stage = one_is_away({"request": 0.5}, sleeper=0.5)
    stage.cell_starts("sleeper")
    assert borrower_leaves(stage)


def test_one_that_cannot_burst_stays_at_home_whoever_borrows_there() -> None:
    stage = one_is_away({"limit": 0.25})
    stage.cell_starts("sleeper")
    assert borrower_leaves(stage)


@pytest.mark.parametrize("firm", ["owner", "borrower"])
def test_nobody_exchanges_a_home_that_a_cluster_s_scheduler_gave(firm: str) -> None:
    given = {"owner": (GpuUuid("GPU-1"),), "borrower": (GpuUuid("GPU-0"),)}
    stage = one_is_away(**{name: {"given_home": home} for name, home in given.items() if name == firm})
    stage.cell_starts("sleeper")
    assert borrower_leaves(stage)


def test_nobody_s_new_home_is_outside_its_pools() -> None:
    stage = one_is_away(pools=(Pool("one", ("1",)),), owner={"pools": ("one",)})
    stage.cell_starts("sleeper")
    assert borrower_leaves(stage)


def test_a_wish_takes_nobody_elses_home() -> None:
    stage = Stage(2)
    stage.notebook("alice", request=0.5)
    stage.notebook("bob", request=0.75, limit=0.75)
    assert (stage.home("alice"), stage.home("bob")) == ([0], [1])
    stage.user_migrates("alice", 1)
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 1)
    assert stage.orders("bob") == ["start"]


def test_who_was_to_leave_for_another_stays_once_both_have_room() -> None:
    stage = Stage(2, pools=(Pool("one", ("0",)),))
    stage.command("work", 0.25, pools=("one",))
    stage.notebook("alice", 0.5, 0.5, pools=("one", "default"))
    stage.cell_starts("alice")
    stage.notebook("bob", 0.5, 0.5, pools=("one",))
    assert (stage.home("alice"), stage.reason("alice")) == ([1], stage.why(Reason.NEEDED, "bob", gpus=[0]))
    stage.ends_well("work")
    assert (stage.home("alice"), stage.gpu("bob")) == ([0], 0)
    assert stage.reason("alice").kind is Reason.AT_HOME
    stage.cell_ends("alice")
    stage.after(60)
    assert (stage.gpu("alice"), stage.orders("alice")) == (0, ["start"])
