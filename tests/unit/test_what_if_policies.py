"""Each policy on small workloads whose outcome can be told by hand; costs are round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.what_if.play.costs import Costs
from nls_scheduler.what_if.play.figures import Figures, Waits
from nls_scheduler.what_if.play.stage import Stage
from nls_scheduler.what_if.policies import TITLES, policy_named
from nls_scheduler.what_if.policies.oracle import bound, places_of
from nls_scheduler.what_if.policies.ours import Ours
from nls_scheduler.what_if.scenario import settings_of
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session

if TYPE_CHECKING:
    from nls_scheduler.what_if.workload_file.rows import Row

GIB = 2**30
GPU = 80 * GIB
COSTS = Costs(
    context_s=1.0, imports_s=2.0, restore_bytes_per_s=GIB, save_bytes_per_s=GIB, order_s=0.0, release_s=0.0, stop_s=0.0,
    paging_bytes_per_s=10 * GIB, replica_s=0.5, quantum_s=30.0, culler_idle_s=100.0, context_bytes=0,
)  # fmt: skip


def session(name: str, begin: float, end: float, request: float = 0.5, limit: float = 1.0) -> Session:
    return Session(name, begin, end, request, limit)


def cell(name: str, begin: float, end: float, held: int = GIB, state: int = GIB) -> Cell:
    return Cell(name, begin, end, held, state)


def played(policy: str, rows: list[Row], gpus: int = 1, costs: Costs = COSTS, rules: tuple[str, ...] = ()) -> Figures:
    rows = sorted(rows, key=lambda row: row.begin_s)
    figures = Figures(0.0, max(row.end_s for row in rows), gpus)
    stage = Stage(gpus, GPU, costs, figures)
    stage.play(policy_named(policy, stage, settings_of(rules)[1]), iter(rows))
    assert figures.whole
    assert not stage.actors
    return figures


ONE = [session("a", 0, 100), cell("a", 10, 20), cell("a", 30, 50)]


@pytest.mark.parametrize("policy", TITLES)
def test_one_notebook_alone_never_waits_for_anybody(policy: str) -> None:
    figures = played(policy, ONE)
    assert figures.waits.count == 2
    assert figures.used_s == 30
    assert figures.slowed_s == pytest.approx(0)
    assert (figures.never_ran, figures.out_of_memory, figures.lost, figures.again_s) == (0, 0, 0, 0)
    assert figures.open_s == 100
    assert figures.waits.sum_s == pytest.approx(0 if policy != "replicas" else 0.5 + 1.5)
    assert sum(figures.busy_s[0]) == pytest.approx(30 + (figures.slowed_s))


@pytest.mark.parametrize("policy", TITLES)
def test_the_same_workload_gives_the_same_figures(policy: str) -> None:
    rows = [*ONE, session("b", 5, 90), cell("b", 12, 40), Command("c", 20, 30, 1.0, 1.0, memory_bytes=GIB)]
    assert played(policy, rows).summary() == played(policy, rows).summary()


def test_whole_gpus_wait_for_the_end_of_a_session() -> None:
    figures = played("whole", [*ONE, session("b", 5, 150), cell("b", 20, 25)])
    assert figures.waits.percentile_s(1.0) == pytest.approx(80, rel=0.01)
    assert figures.whom["b", "a"] == 80
    assert figures.reserved_s == pytest.approx(150)


def test_a_cell_whose_session_ends_first_never_runs_and_counts_as_a_wait() -> None:
    figures = played("whole", [*ONE, session("b", 5, 80), cell("b", 20, 25)])
    assert figures.never_ran == 1
    assert figures.waits.count == 3
    assert figures.waits.percentile_s(1.0) == pytest.approx(60, rel=0.01)


def test_a_culler_ends_who_is_idle_and_its_work_is_done_again() -> None:
    rows = [session("a", 0, 390), cell("a", 10, 20), cell("a", 300, 310)]
    figures = played("culler", rows)
    assert figures.lost == 1
    assert figures.again_s == 10
    assert figures.waits.sum_s == pytest.approx(3.0)
    assert figures.reserved_s == pytest.approx(120 + 90)


def test_a_culler_counts_from_when_a_notebook_got_its_gpu() -> None:
    rows = [session("a", 0, 95), session("b", 0, 260), cell("b", 180, 190)]
    assert played("culler", rows).waits.sum_s == 0


def test_fixed_fractions_refuse_what_is_above_the_request() -> None:
    rows = [session("a", 0, 100), cell("a", 10, 20, held=50 * GIB)]
    assert played("fractions", rows).out_of_memory == 1
    assert played("kill", rows).out_of_memory == 0


def test_who_is_above_their_request_is_killed_when_the_memory_is_needed() -> None:
    rows = [
        session("a", 0, 200),
        cell("a", 10, 60, held=60 * GIB),
        session("b", 0, 200),
        cell("b", 30, 40, held=30 * GIB),
    ]
    figures = played("kill", rows)
    assert (figures.lost, figures.broken_off) == (0, 1)
    assert figures.again_s == pytest.approx(20)


def test_a_newcomer_sends_a_borrower_home_without_its_memory() -> None:
    rows = [
        session("a", 0, 300), cell("a", 5, 10), session("b", 1, 300), cell("b", 6, 16), session("c", 50, 300, 1.0, 1.0),
        cell("c", 60, 70), cell("b", 100, 110),
    ]  # fmt: skip
    figures = played("memory-lost", rows, gpus=2)
    assert figures.lost == 1
    assert figures.again_s == 10
    assert figures.share_at_once == 1.0


def test_a_borrower_that_computes_is_broken_off_and_computes_its_last_cell_again_first() -> None:
    rows = [
        session("a", 0, 300), cell("a", 5, 10), session("b", 1, 300), cell("b", 6, 16), cell("b", 40, 60),
        session("c", 50, 300, 1.0, 1.0),
    ]  # fmt: skip
    figures = played("memory-lost", rows, gpus=2)
    assert (figures.lost, figures.broken_off) == (1, 1)
    assert figures.again_s == pytest.approx(10 + 10)


def test_a_command_may_have_the_name_of_a_notebook() -> None:
    rows = [session("a", 0, 100), Command("a", 5, 15, 0.5, 0.5), cell("a", 10, 20)]
    figures = played("fractions", rows, costs=replace(COSTS, gpu_part=0.0))
    assert (figures.waits.count, figures.command_waits.count) == (1, 1)
    assert figures.used_s == 20


def test_ours_moves_the_same_notebook_and_loses_nothing() -> None:
    rows = [
        session("a", 0, 300), cell("a", 5, 10), session("b", 1, 300), cell("b", 6, 16), session("c", 50, 300, 1.0, 1.0),
        cell("c", 60, 70), cell("b", 100, 110),
    ]  # fmt: skip
    figures = played("nls", rows, gpus=2)
    assert (figures.lost, figures.again_s) == (0, 0)
    assert (figures.moves, figures.moved_bytes) == (1, GIB)
    assert figures.share_at_once == 1.0


def test_turns_are_as_long_as_the_quantum() -> None:
    rows = [session("a", 0, 200), cell("a", 10, 80), session("b", 0, 200), cell("b", 20, 60)]
    figures = played("quantum", rows)
    assert figures.waits.percentile_s(1.0) == pytest.approx(20, rel=0.01)
    assert figures.slowed_s == pytest.approx((10 + 30 + 30 + 30 + 10 + 10 - 10 - 70) + (40 + 30 - 40), abs=11)


def test_who_comes_in_the_middle_of_a_quantum_waits_for_its_end_and_who_is_alone_is_not_asked_to_go() -> None:
    rows = [session("a", 0, 900), cell("a", 10, 810), session("b", 0, 900), cell("b", 105, 110), cell("b", 400, 410)]
    figures = played("quantum", rows)
    assert figures.waits.sum_s == 25 + 5  # until 130; and until 405, as the turn after `b` began at 135
    assert figures.slowed_s == pytest.approx(5 + 10)


def test_who_asks_in_the_moment_another_one_s_turn_begins_waits_for_all_of_it() -> None:
    rows = [session("a", 0, 900), cell("a", 10, 50), cell("a", 50, 60), session("b", 0, 900), cell("b", 12, 92)]
    figures = played("quantum", rows)
    assert figures.waits.sum_s == (40 - 12) + (110 - 80)  # `a`'s first cell ends at 80


@pytest.mark.parametrize("policy", TITLES)
def test_who_is_alone_takes_as_many_steps_for_years_as_for_hours(policy: str) -> None:
    def steps(length_s: float) -> int:
        told: list[float] = []
        stage = Stage(1, GPU, COSTS, Figures(0.0, length_s, 1))
        rows = iter([session("a", 0, length_s), cell("a", 0, length_s)])
        stage.play(policy_named(policy, stage, settings_of(())[1]), rows, told.append)
        return len(told)

    assert steps(1e8) == steps(1e4)


def test_replicas_wait_for_the_end_of_a_cell() -> None:
    rows = [session("a", 0, 200), cell("a", 10, 80), session("b", 0, 200), cell("b", 20, 60)]
    figures = played("replicas", rows)
    assert figures.waits.percentile_s(1.0) == pytest.approx(61, rel=0.01)
    assert figures.whom["b", "a"] == 61


def test_cells_beside_each_other_go_at_half_the_speed_in_the_worst_case() -> None:
    rows = [session("a", 0, 200), cell("a", 10, 50), session("b", 0, 200), cell("b", 10, 50)]
    assert played("fractions", rows).slowed_s == pytest.approx(80)
    assert played("fractions", rows, costs=replace(COSTS, gpu_part=0.0)).slowed_s == pytest.approx(0)


def test_requests_on_demand_let_more_notebooks_in_than_fit() -> None:
    rows = [row for name in "abc" for row in (session(name, 0, 400), cell(name, 50, 60))]
    rows += [cell("c", 200, 210), cell("a", 300, 310)]
    guaranteed, on_demand = played("nls", rows), played("nls-on-demand", rows)
    assert guaranteed.never_ran == 2
    assert on_demand.never_ran == 0
    assert on_demand.waits.percentile_s(1.0) < 30


def test_a_cell_beyond_its_limit_runs_out_of_memory_under_ours() -> None:
    rows = [session("a", 0, 100, 0.25, 0.5), cell("a", 10, 20, held=60 * GIB)]
    figures = played("nls", rows)
    assert figures.out_of_memory == 1
    assert figures.share_at_once == 0.0  # it had not its GPU with all that it took


def test_a_command_gets_its_gpu_and_ends() -> None:
    rows = [*ONE, Command("train", 25, 75, 0.5, 0.5, memory_bytes=GIB)]
    figures = played("nls", rows, gpus=2)
    assert figures.command_waits.count == 1
    assert figures.used_s == 30 + 50


def test_every_step_of_a_play_keeps_the_invariants() -> None:
    rows = [row for name in "abcd" for row in (session(name, 0, 400), cell(name, 50, 60, held=30 * GIB))]
    rows += [Command("train", 100, 150, 1.0, 1.0), cell("a", 120, 130, held=70 * GIB), cell("b", 125, 135)]
    rows.sort(key=lambda row: row.begin_s)
    figures = Figures(0.0, 400.0, 2)
    stage = Stage(2, GPU, Costs(), figures)
    ours = Ours(stage, watched=True)
    stage.play(ours, iter(rows))
    assert figures.out_of_memory == 1  # beside its neighbour there is no room for 70 GiB
    assert figures.used_s == 4 * 10 + 10 + 50
    assert ours.node.history


def test_the_bound_counts_what_fits_at_once() -> None:
    rows: list[Row] = [session(name, 0, 100) for name in "abc"]
    rows += [cell("a", 10, 50), cell("b", 11, 20), cell("c", 12, 30)]
    assert places_of(GPU // 2, GPU) == 2
    assert bound(rows, 1) == pytest.approx(1 / 3)
    assert bound(rows, 2) == pytest.approx(2 / 3)
    assert bound(rows, 3) == 1.0


def test_percentiles_of_waits_are_right_to_one_percent() -> None:
    waits = Waits()
    for number in range(1000):
        waits.add(number / 10)
    assert waits.at_once == 11
    assert waits.percentile_s(0.5) == pytest.approx(50, rel=0.015)
    assert waits.percentile_s(0.99) == pytest.approx(99, rel=0.015)
