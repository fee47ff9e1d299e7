"""What holds of every play of every workload, ties and all: nobody is forgotten, nothing is counted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nls_scheduler.core.model.policy import Policy as Rules
from nls_scheduler.what_if.play.costs import Costs
from nls_scheduler.what_if.play.figures import Figures
from nls_scheduler.what_if.play.stage import Stage
from nls_scheduler.what_if.policies import TITLES, policy_named
from nls_scheduler.what_if.workload_file.checking import Checker, checked
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session

if TYPE_CHECKING:
    from nls_scheduler.what_if.workload_file.rows import Row

GIB = 2**30
GPU = 80 * GIB
TIMES = st.integers(0, 12)
"""In tens of seconds, so that much happens in the same moment."""
SHARES = st.sampled_from([0.25, 0.5, 1.0])


@st.composite
def workloads(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = []
    for number in range(draw(st.integers(1, 4))):
        begin, length = draw(TIMES), draw(st.integers(1, 12))
        name, request = f"n{number}", draw(SHARES)
        rows.append(Session(name, 10.0 * begin, 10.0 * (begin + length), request, 1.0))
        at = begin
        for _ in range(draw(st.integers(0, 3))):
            at += draw(st.integers(0, 3))
            end = at + draw(st.integers(1, 4))
            if end > begin + length:
                break
            held = draw(st.sampled_from([GIB, 30 * GIB, 60 * GIB]))
            rows.append(Cell(name, 10.0 * at, 10.0 * end, held, draw(st.sampled_from([0, GIB, held]))))
            at = end
    for number in range(draw(st.integers(0, 2))):
        begin, request = draw(TIMES), draw(SHARES)
        rows.append(Command(f"c{number}", 10.0 * begin, 10.0 * begin + 25, request, 1.0, memory_bytes=20 * GIB))
    rows.sort(key=lambda row: (row.begin_s, isinstance(row, Cell)))
    return list(checked(((None, row) for row in rows), Checker(GPU)))


@pytest.mark.parametrize("policy", TITLES)
@settings(max_examples=20)
@given(rows=workloads(), gpus=st.integers(1, 2), part=st.sampled_from([0.0, 1.0]))
def test_whoever_comes_runs_fails_or_never_ran_and_no_gpu_is_reserved_twice(
    policy: str, rows: list[Row], gpus: int, part: float
) -> None:
    figures = Figures(0.0, 1000.0, gpus)
    stage = Stage(gpus, GPU, Costs(gpu_part=part, culler_idle_s=40.0), figures)
    stage.play(policy_named(policy, stage, Rules()), iter(rows))
    asked = sum(not isinstance(row, Session) for row in rows)
    lengths = sum(row.end_s - row.begin_s for row in rows if not isinstance(row, Session))
    assert not stage.actors
    assert 0 <= figures.used_s <= lengths + 1e-6
    if not (figures.never_ran or figures.out_of_memory):
        assert figures.used_s == pytest.approx(lengths)
    else:
        assert figures.never_ran + figures.out_of_memory <= asked
        assert figures.used_s <= lengths - 10 * (figures.never_ran + figures.out_of_memory) + 1e-6
    assert figures.waits.at_once <= figures.waits.count
    assert figures.waiting_s <= figures.open_s + 1e-6
    assert figures.whole_gpu_s <= figures.open_s - figures.waiting_s + 1e-6
    assert figures.reserved_s <= gpus * figures.ended_at + 1e-6
    if policy == "whole":
        assert figures.saved_s == pytest.approx(0, abs=1e-6)
    if figures.broken_off == 0:
        assert sum(map(sum, figures.busy_s)) >= figures.used_s / (1 + 6 * (1 - part)) - 1e-6
    for who, whom in figures.whom:
        assert who != whom
