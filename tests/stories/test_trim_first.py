"""Memory is short: caches are given back first, and often that is enough."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model.commands import SuspendProcess, TrimMemory
from stage import Stage, with_one_small_gpu


def test_a_guarantee_that_only_caches_are_in_the_way_of_costs_nobody_their_gpu() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.4, cached=0.5)
    stage.notebook("bob")
    assert stage.orders("alice") == ["start", "trim"]
    assert stage.runs("alice", "bob")


def test_a_running_cell_gives_caches_back_and_goes_on() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.4, cached=0.5)
    stage.cell_starts("alice")
    stage.notebook("bob")
    assert stage.orders("alice") == ["start", "trim"]
    assert stage.workload("alice").executing
    assert stage.runs("alice", "bob")


def test_where_caches_free_too_little_the_next_rung_follows_once_that_was_seen() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.8, cached=0.1)
    bob = stage.node.submit(name="bob")
    trim = stage.pending("alice")
    assert isinstance(trim, TrimMemory)
    stage.node.complete(trim)
    assert stage.pending("alice") is None, "what the trim freed has not been sampled yet"
    stage.node.sample()
    assert isinstance(stage.pending("alice"), SuspendProcess)
    stage.node.settle()
    assert stage.orders("alice")[:3] == ["start", "trim", "suspend"]
    assert stage.node.where(bob) == "running on 0"


def test_one_cause_trims_once_and_the_next_one_again() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.holds("alice", 0.4, cached=0.5)
    stage.notebook("bob", 0.25)
    stage.after(60)
    assert stage.orders("alice") == ["start", "trim"]
    stage.holds("alice", 0.4, cached=0.3)
    stage.after(60)
    stage.notebook("carol", 0.25)
    assert stage.orders("alice") == ["start", "trim", "trim"]
    assert stage.runs("alice", "bob", "carol")


def test_everybody_above_their_request_there_gives_back_before_anybody_leaves() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    stage.holds("alice", 0.3, cached=0.1)
    stage.holds("bob", 0.25, cached=0.3)
    stage.notebook("carol", 0.4)
    assert stage.orders("alice") == ["start", "trim"]
    assert stage.orders("bob") == ["start", "trim"]
    assert stage.runs("alice", "bob", "carol")


def test_who_would_leave_first_waits_for_the_caches_of_its_neighbours() -> None:
    """alice is furthest above her request and has no caches; bob's are enough."""
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    stage.holds("alice", 0.45)
    stage.holds("bob", 0.15, cached=0.25)
    stage.notebook("carol", 0.25)
    assert stage.orders("alice") == stage.orders("bob") == ["start", "trim"]
    assert stage.runs("alice", "bob", "carol")


def test_who_holds_no_more_than_their_request_keeps_their_caches() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    stage.holds("alice", 0.1, cached=0.1)
    stage.holds("bob", 0.2, cached=0.5)
    stage.notebook("carol", 0.5)
    assert stage.orders("alice") == ["start"]
    assert stage.runs("alice", "bob", "carol")


def test_who_has_to_leave_whatever_they_give_back_is_not_trimmed() -> None:
    """bob borrows the Gpu that training owns in full: no trim could let him stay."""
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    stage.holds("alice", 0.4)
    stage.holds("bob", 0.3)
    stage.command("training")
    assert stage.runs("alice", "bob", "training")
    assert stage.orders("bob") == ["start", "suspend", "start"]


def test_a_supervisor_that_answers_no_trim_delays_the_guarantee_by_a_part_of_the_deadline_only() -> None:
    stage = Stage(1, reclaim_deadline_s=3.0, stop_grace_s=0.5, trim_timeout_s=5.0)
    stage.notebook("alice")
    stage.holds("alice", 0.9)
    stage.node.submit(name="bob")
    assert isinstance(stage.pending("alice"), TrimMemory)
    stage.node.fire_timer()
    assert isinstance(stage.pending("alice"), SuspendProcess)
    assert stage.node.now == pytest.approx(0.625)


def test_a_burst_that_waits_gets_the_room_of_caches_before_anybody_s_place() -> None:
    """bob's variables need more than his request; alice's caches are all that is in their way."""
    stage = Stage(1, residency_per_move=0.0)
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    stage.holds("bob", 0.5)
    stage.user_suspends("bob")
    stage.holds("alice", 0.3, cached=0.5)
    stage.after(60)
    stage.cell_starts("bob")
    assert stage.orders("alice") == ["start", "trim"]
    assert stage.runs("alice", "bob")


@pytest.mark.parametrize("executing", [False, True])
def test_who_was_chosen_with_others_to_move_is_trimmed_first(executing: bool) -> None:
    """Bob's home is found in a search that counts what alice holds, and sends her home."""

    stage = Stage(2, with_one_small_gpu)
    stage.notebook("alice", 0.025)
    stage.cell_starts("alice")
    stage.holds("alice", 0.375, cached=0.625)
    if not executing:
        stage.cell_ends("alice")
    assert (stage.gpu("alice"), stage.home("alice")) == (1, [0])
    stage.after(60)
    stage.notebook("bob")
    assert stage.orders("alice") == ["start", "trim"]
    assert stage.runs("alice", "bob")
