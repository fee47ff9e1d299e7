"""Figures of small workloads, worked out by hand: ties, who waited for whom, what was saved, what moved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from test_what_if_policies import COSTS, GIB, cell, played, session

from nls_scheduler.what_if.policies import TITLES
from nls_scheduler.what_if.policies.oracle import bound
from nls_scheduler.what_if.workload_file.rows import Command, Session

if TYPE_CHECKING:
    from nls_scheduler.what_if.workload_file.rows import Row

LINES = ("whole", "culler", "fractions", "kill", "memory-lost", "nls")
"""Those where a notebook waits for a place of its own."""


@pytest.mark.parametrize("policy", TITLES)
def test_who_leaves_in_the_moment_a_place_comes_free_does_not_get_it(policy: str) -> None:
    rows = [session("a", 0, 100, 1.0), session("b", 5, 100, 1.0), cell("b", 20, 40)]
    rows += [session("c", 6, 100, 1.0), cell("c", 30, 50)]
    figures = played(policy, rows, costs=replace(COSTS, gpu_part=0.0))
    if policy in LINES:
        assert figures.never_ran == 2
        assert figures.used_s == 0
    assert figures.open_s == 100 + 95 + 94


@pytest.mark.parametrize("policy", TITLES)
def test_of_those_who_leave_in_one_moment_nobody_lets_another_one_in(policy: str) -> None:
    rows = [
        session("a", 0, 20, 0.25),
        session("big", 0, 20, 1.0),
        session("b", 0, 20, 0.25),
        cell("b", 0, 10, 30 * GIB),
    ]
    figures = played(policy, rows)
    assert figures.open_s == 60
    if policy in ("whole", "fractions", "kill", "memory-lost"):
        assert (figures.never_ran, figures.out_of_memory, figures.broken_off) == (1, 0, 0)


@pytest.mark.parametrize("policy", ["whole", "replicas", "nls"])
def test_who_leaves_in_the_moment_a_cell_ends_does_not_get_its_gpu(policy: str) -> None:
    rows = [session("a", 0, 50.3, 1.0), cell("a", 0.1, 50.3), session("b", 5, 50.3, 1.0), cell("b", 20, 40)]
    costs = replace(COSTS, replica_s=0.0, imports_s=0.0, context_s=0.0)
    figures = played(policy, rows, costs=costs)
    assert (figures.never_ran, figures.used_s) == (1, pytest.approx(50.2))
    assert figures.open_s == pytest.approx(50.3 + 45.3)


@pytest.mark.parametrize("policy", ["whole", "fractions", "kill", "memory-lost", "nls"])
def test_who_begins_in_the_moment_another_ends_is_in_nobodys_way(policy: str) -> None:
    rows = [session("a", 0, 100, 1.0), cell("a", 10, 20), session("b", 100, 200, 1.0), cell("b", 110, 120)]
    figures = played(policy, rows)
    assert (figures.waits.at_once, figures.broken_off, figures.lost, figures.moves) == (2, 0, 0, 0)
    assert figures.reserved_s == pytest.approx(200, abs=2)


@pytest.mark.parametrize("policy", LINES)
def test_who_waits_for_a_place_waits_for_whoever_leaves_it(policy: str) -> None:
    rows = [session("a", 0, 100, 1.0), session("b", 5, 200, 1.0), cell("b", 20, 40)]
    figures = played(policy, rows)
    (pair,) = figures.whom.items()
    assert pair == (("b", "a"), pytest.approx(80, abs=2))
    assert figures.summary()["who_waited_for_whom"] == [{"who": "b", "for": "a", "seconds": pytest.approx(80, abs=2)}]


def test_many_short_waits_are_a_long_one() -> None:
    rows: list[Row] = [session("a", 0, 2000), session("b", 0, 2000)]
    for at in range(10, 1010, 10):
        rows += [cell("a", at, at + 2, state=0), cell("b", at + 1.6, at + 3, state=0)]
    figures = played("replicas", rows, costs=replace(COSTS, replica_s=0.0))
    assert figures.whom["b", "a"] == pytest.approx(100 * 0.4)


def test_who_was_killed_or_sent_home_waits_for_whom_that_was() -> None:
    rows = [session("a", 0, 200), cell("a", 10, 60, held=60 * GIB), session("b", 0, 32), cell("b", 30, 31, 30 * GIB)]
    assert played("kill", rows).whom == {("a", "b"): 3.0}
    rows = [session("a", 0, 300), session("b", 1, 300), cell("b", 40, 60), session("c", 50, 300, 1.0)]
    assert played("memory-lost", rows, gpus=2).whom == {("b", "c"): 3.0}


def test_a_turn_is_waited_for_whoever_had_the_last_one() -> None:
    rows = [session("a", 0, 200), cell("a", 10, 80), session("b", 0, 200), cell("b", 20, 60)]
    assert played("quantum", rows).whom == {("b", "a"): 20.0}


def test_ours_waits_for_who_computes_where_more_is_promised_than_there_is() -> None:
    rows = [row for name in "abc" for row in (session(name, 0, 400), cell(name, 50, 150))]
    figures = played("nls-on-demand", rows, costs=replace(COSTS, gpu_part=0.0))
    ((who, whom),) = figures.whom
    assert who not in whom
    assert figures.whom[who, whom] == pytest.approx(100, abs=5)


@pytest.mark.parametrize("policy", TITLES)
def test_waiting_is_no_saving(policy: str) -> None:
    """`b` waits from 5 to 100; where it has to, what a whole GPU would reserve meanwhile is not saved by anybody."""
    rows = [session("a", 0, 100, 1.0), cell("a", 0, 100), session("b", 5, 200, 1.0), cell("b", 20, 40)]
    figures = played(policy, rows)
    assert figures.saved_s == figures.whole_gpu_s - figures.reserved_s
    if policy in LINES:
        assert figures.waiting_s == pytest.approx(95, abs=4)
        assert figures.whole_gpu_s == pytest.approx(200, abs=4)
        assert figures.saved_s == pytest.approx(0, abs=4)


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_a_whole_gpu_each_saves_nothing_however_long_they_wait(seconds: float) -> None:
    rows = [
        row for name in "abcd" for row in (session(name, 0, 300), cell(name, 10 + seconds, 110), cell(name, 120, 290))
    ]
    figures = played("whole", rows, gpus=2)
    assert figures.never_ran > 0
    assert figures.saved_s == pytest.approx(0)


def test_a_share_saves_the_rest_of_the_gpu_and_a_longer_session_saves_nothing() -> None:
    rows = [session("a", 0, 100), cell("a", 40, 90), session("b", 0, 100), cell("b", 40, 90)]
    figures = played("fractions", rows)  # at half the speed each, so that both leave at 140
    assert (figures.open_s, figures.waiting_s) == (280, 0)
    assert (figures.whole_gpu_s, figures.reserved_s, figures.saved_s) == (200, 140, 60)


def test_a_first_start_is_no_move() -> None:
    for policy in ("replicas", "quantum", "nls", "nls-on-demand"):
        rows = [session("a", 0, 100), cell("a", 10, 20, 50 * GIB, 8 * GIB)]
        rows += [session("b", 0, 100), cell("b", 40, 50, 50 * GIB, 4 * GIB)]
        figures = played(policy, rows)
        assert (figures.moves, figures.moved_bytes) == (0, 0), policy


def test_a_cell_that_comes_back_brings_what_it_held_and_no_more() -> None:
    rows = [session("a", 0, 100), cell("a", 10, 20, 50 * GIB, 8 * GIB), cell("a", 40, 50, 50 * GIB, 2 * GIB)]
    figures = played("replicas", rows)
    assert (figures.moves, figures.moved_bytes) == (1, 8 * GIB)
    assert figures.waits.sum_s == pytest.approx(0.5 + 0.5 + 8)
    rows += [session("b", 0, 100), cell("b", 25, 30, 60 * GIB, 40 * GIB)]
    figures = played("quantum", rows)
    assert (figures.moves, figures.moved_bytes) == (1, 8 * GIB)
    assert figures.waits.sum_s == pytest.approx(0.8)


def test_a_cell_that_never_ran_or_had_too_little_memory_had_nothing_at_once() -> None:
    rows = [session("a", 0, 20.5, 1.0), session("b", 0, 20.5, 1.0), cell("b", 20, 20.5)]
    assert played("whole", rows).waits.at_once == 0
    rows = [session("a", 0, 100, 0.5), session("b", 0, 200, 1.0), cell("b", 20, 30)]
    rows += [session("c", 0, 300, 0.5, 0.5), cell("c", 40, 50, held=60 * GIB), cell("c", 250, 260)]
    figures = played("fractions", rows)
    assert (figures.waits.count, figures.out_of_memory, figures.late) == (3, 1, 2)
    assert figures.share_at_once == pytest.approx(1 / 3)


@pytest.mark.parametrize("policy", ["fractions", "kill", "nls", "quantum", "replicas"])
def test_cells_behind_their_notebooks_own_longer_cell_that_never_ran_were_late(policy: str) -> None:
    """`a`'s first cell shares the Gpu until after its session's end, so that its other two are never begun."""
    rows = [session("a", 0, 160), cell("a", 10, 100), cell("a", 110, 120), cell("a", 130, 140)]
    rows += [session("b", 0, 1000), cell("b", 9, 99)]
    figures = played(policy, rows)
    late = 2 if policy not in ("quantum", "replicas") else 3  # there it also waits for the first one's turn
    assert (figures.waits.count, figures.never_ran, figures.late) == (4, 2, late)
    if late == 2:
        assert figures.waits.sum_s == pytest.approx((160 - 110) + (160 - 130))


def test_each_cell_that_never_ran_waited_from_when_it_was_recorded_to_its_sessions_end() -> None:
    rows = [session("a", 0, 1000, 1.0), session("b", 0, 100, 1.0), cell("b", 10, 20), cell("b", 90, 95)]
    figures = played("whole", rows)
    assert (figures.waits.count, figures.never_ran, figures.late) == (2, 2, 2)
    assert figures.waits.sum_s == 90 + 10


def test_a_cell_that_is_broken_off_is_one_cell_and_waited_for_as_long_as_it_had_no_gpu() -> None:
    rows = [session("a", 0, 900), cell("a", 10, 210, 60 * GIB), session("b", 0, 900), cell("b", 50, 60, 30 * GIB)]
    figures = played("kill", rows, costs=replace(COSTS, gpu_part=0.0))
    assert (figures.waits.count, figures.broken_off, figures.late) == (2, 1, 1)
    assert figures.waits.sum_s == 3  # imports and a context, when it starts again


def test_memory_is_lost_once_until_there_is_some_again() -> None:
    rows = [session("a", 0, 1000), cell("a", 10, 20), cell("a", 300, 310, state=0), cell("a", 900, 910)]
    figures = played("culler", rows)
    assert figures.lost == 1
    assert figures.again_s == 10


def test_a_command_above_its_limit_fails_under_every_policy_that_has_limits() -> None:
    rows: list[Row] = [Command("train", 10, 60, 0.5, 0.5, memory_bytes=60 * GIB), session("a", 0, 100)]
    for policy in ("fractions", "kill", "memory-lost", "nls", "nls-on-demand"):
        figures = played(policy, rows)
        assert (figures.out_of_memory, figures.used_s, figures.late) == (1, 0, 0), policy


def test_a_command_is_never_stopped_for_another_under_ours() -> None:
    rows: list[Row] = [Command("low", 0, 100, 1.0, 1.0, 0), Command("high", 50, 100, 1.0, 1.0, 100)]
    figures = played("nls", rows)
    assert (figures.used_s, figures.broken_off) == (150, 0)
    assert figures.whom == {("high", "low"): 52.0}  # each takes a second to start


def test_a_command_within_its_limit_and_above_its_request_has_no_memory_under_ours() -> None:
    rows: list[Row] = [Command("train", 0, 100, 0.25, 1.0, memory_bytes=50 * GIB), session("a", 10, 300)]
    assert played("nls", rows).out_of_memory == 1
    assert played("kill", rows).out_of_memory == 0


def test_what_waits_for_what_never_comes_ends_the_play_and_is_counted() -> None:
    rows: list[Row] = [session("a", 0, 100), Command("train", 10, 60, 1.0, 1.0, queue="nobody")]
    figures = played("nls", rows, rules=("queues={'nobody': {'limit': 0}}",))
    assert figures.command_waits.count == 1
    assert figures.never_ran == 1


def test_sessions_of_one_name_may_adjoin_and_overlap_by_their_last_cells() -> None:
    rows = [session("a", 0, 100), cell("a", 50, 100), session("b", 0, 200), cell("b", 50, 100)]
    rows += [session("a", 100, 200), cell("a", 110, 120)]
    figures = played("fractions", rows)
    assert (figures.waits.count, figures.used_s) == (3, 110)


def test_the_bound_grants_the_second_that_counts_as_at_once() -> None:
    rows: list[Row] = [session("a", 0, 100), session("b", 0, 100), cell("a", 10, 20), cell("b", 19.5, 30)]
    assert bound(rows, 1) == 1.0
    rows[-1] = cell("b", 18.9, 30)
    assert bound(rows, 1) == 0.5
    rows[-1] = cell("b", 15, 16)
    assert bound(rows, 1) == 1.0


def test_a_workload_alone_is_the_same_under_every_session_name() -> None:
    rows = [Session(name, 0.0, 10.0, 0.5, 1.0) for name in ("a", "a (2)")]
    assert played("whole", list(rows), gpus=2).open_s == 20
