"""The status with entries that were kept says what one that is made anew would."""

from __future__ import annotations

import random

import pytest

from nls_scheduler.views import kept, status
from nls_scheduler.views.kept import KeptEntries
from nls_scheduler.views.sentences import Names
from nls_scheduler.views.status import in_order, workload_view
from nls_scheduler.views.veil import SEES_ALL, Viewer
from stage import Stage

OTHER = Viewer(4711, "", sees_all=False)


@pytest.fixture(autouse=True)
def _one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of day are derived from two clocks and differ by a millisecond between two calls."""
    monkeypatch.setattr(status, "wall_time", str)


def check(entries: KeptEntries, stage: Stage, viewer: Viewer) -> None:
    state, now = stage.node.state, stage.node.state.at
    names = Names.of(state, viewer)
    anew = [workload_view(state, workload, now, names) for workload in in_order(state)]
    assert entries.of(state, now, viewer) == anew


@pytest.mark.parametrize("seed", range(8))
def test_they_are_what_they_would_be_if_they_were_made_anew(seed: int) -> None:
    draw, stage, entries, there = random.Random(seed), Stage(), KeptEntries(lambda: 0.0), []
    for number in range(40):
        act = draw.choice(["come", "come", "cell", "end of cell", "go", "wait", "holds", "keep"])
        if act == "come" or not there:
            there.append(f"n{number}")
            stage.notebook(there[-1], draw.choice([0.2, 0.5, 1.0]))
        elif act == "cell":
            stage.cell_starts(draw.choice(there))
        elif act == "end of cell":
            stage.cell_ends(draw.choice(there))
        elif act == "holds" and stage.gpu(there[0]) is not None:
            stage.holds(there[0], 0.1)
        elif act == "keep":
            stage.user_keeps(draw.choice(there), 20.0)
        elif act == "go":
            stage.ends(there.pop(draw.randrange(len(there))))
        else:
            stage.after(draw.choice([0.5, 30.0]))
        for viewer in (SEES_ALL, OTHER):
            check(entries, stage, viewer)


def test_one_that_is_as_it_was_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, entries, made = Stage(), KeptEntries(lambda: 0.0), []
    monkeypatch.setattr(kept, "workload_view", lambda *given: made.append(given[1].id) or workload_view(*given))
    for name in "abc":
        stage.notebook(name)
    state, now = stage.node.state, stage.node.state.at
    first = entries.of(state, now, SEES_ALL)
    assert len(made) == 3
    first[0]["supervisor_pid"] = 1  # theirs to change
    assert "supervisor_pid" not in entries.of(state, now, SEES_ALL)[0]
    assert len(made) == 3
    # When the clock is set, every time of day is another.
    entries._wall_clock = lambda: 3600.0
    entries.of(state, now, SEES_ALL)
    assert len(made) == 6


def test_what_is_kept_is_bounded() -> None:
    stage, entries = Stage(), KeptEntries(lambda: 0.0)
    stage.notebook("a")
    for uid in range(50):
        entries.of(stage.node.state, stage.node.state.at, Viewer(uid))
    assert len(entries._kept) == kept.VIEWERS_KEPT
