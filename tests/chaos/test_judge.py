"""The judge finds what it is there to find, and nothing else."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import nls_environment
from expected_state import LOOKED, NAMES, SETUP, expected, looking
from judge import Entry, Judge, Verdict
from world import CHAOS

if TYPE_CHECKING:
    from pathlib import Path


def look(*cells: int, pid: int = 1, **other: Any) -> dict[str, Any]:
    if not cells:
        return {"names": [], "pid": pid, **other}
    return {"names": sorted(NAMES), "pid": pid, "begun": None, **copy.deepcopy(expected(cells)), **other}


@pytest.fixture
def judge() -> Judge:
    """Cells 1, 2, 3 were completed, in the notebook's [5], [6], [7]."""
    judge = Judge()
    for number, begins in ((1, True), (2, False), (3, False)):
        judge.ran(Entry(number, number + 4, begins=begins))
    return judge


def kinds(judge: Judge) -> list[str]:
    return [finding.kind for finding in judge.findings]


def test_the_last_state_is_right(judge: Judge) -> None:
    assert judge.saw(look(1, 2, 3)) is Verdict.WHOLE
    assert kinds(judge) == []
    assert judge.rollbacks_said == judge.rollbacks_unsaid == 0


@pytest.mark.parametrize(
    ("told", "cells", "outcome"),
    [
        ([], (1, 2), "unsaid rollback"),
        (["Moved from GPU 0 to GPU 1: 5 variables kept."], (1, 2), "unsaid rollback"),
        (["back on GPU 0 with the variables of cell [6]"], (1, 2), None),
        (["back on GPU 0 with the variables of cell [7]"], (1, 2), "rollback misnamed"),
        (["back on GPU 0 with the variables of cell [5]"], (1, 2), "rollback misnamed"),
        (["back on GPU 0 with the variables of cell [6]"], (1,), "rollback misnamed"),
        ([], (), "unsaid rollback"),
        (["back on GPU 0 without variables, as none were saved"], (), None),
        ([], (1, 3), "impossible state"),
    ],
)
def test_an_older_state_is_a_finding_unless_a_sentence_names_its_cell(
    judge: Judge, told: list[str], cells: tuple[int, ...], outcome: str | None
) -> None:
    judge.told(told)
    assert judge.unsaid(look(*cells)) is (outcome is not None and "rollback" in outcome)
    judge.saw(look(*cells))
    assert kinds(judge) == ([] if outcome is None else [outcome])
    assert judge.rollbacks_said == (outcome is None)


def test_a_sentence_counts_for_one_rollback(judge: Judge) -> None:
    judge.told(["back on GPU 0 with the variables of cell [6]"])
    judge.saw(look(1, 2))
    judge.ran(Entry(4, 8))
    judge.saw(look(1, 2))
    assert kinds(judge) == ["unsaid rollback"]


def test_a_cell_whose_reply_never_came_may_have_run_or_not(judge: Judge) -> None:
    for seen in ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4, 5)):
        other = copy.deepcopy(judge)
        other.ran(Entry(4, 8, certain=False))
        other.ran(Entry(5, 9, certain=False))
        other.saw(look(*seen))
        assert kinds(other) == []
        other.saw(look(*seen))
        assert kinds(other) == []


def test_what_was_seen_once_has_to_stay(judge: Judge) -> None:
    judge.ran(Entry(4, 8, certain=False))
    judge.saw(look(1, 2, 3, 4))
    judge.saw(look(1, 2, 3))
    assert kinds(judge) == ["unsaid rollback"]


@pytest.mark.parametrize("name", ["n", "book_n", "text", "total", "thing", "base", "view", "rows", "dev", "dev_view"])
def test_a_value_of_another_moment_is_a_finding(judge: Judge, name: str) -> None:
    judge.saw({**look(1, 2, 3), name: expected((1, 2))[name]})
    assert kinds(judge) == ["wrong value"]


def test_an_alias_that_broke_is_a_finding(judge: Judge) -> None:
    judge.saw(look(1, 2, 3, aliases=[True] * 5 + [False]))
    assert [f.sentence for f in judge.findings] == ["tally after cells (1, 2, 3)"]


def without(name: str, pid: int) -> dict[str, Any]:
    return look(1, 2, 3, pid=pid, names=sorted(NAMES - {name}))


@pytest.mark.parametrize(
    "told",
    [
        "Moved: 17 variables kept; not kept: thing (No module named 'chaos_module')",
        "17 variables kept (3 MiB); saved, but could not be restored, and tried again: thing (ModuleNotFoundError)",
    ],
)
def test_a_name_that_vanishes_is_a_finding_unless_a_sentence_names_it(judge: Judge, told: str) -> None:
    other = copy.deepcopy(judge)
    assert judge.unsaid(without("thing", 2))
    assert judge.saw(without("thing", 2)) is Verdict.SPOILT
    assert kinds(judge) == ["name vanished"]
    other.told([told])
    assert not other.unsaid(without("thing", 2))
    assert other.saw(without("thing", 2)) is Verdict.LACKING
    assert other.saw(without("thing", 2)) is Verdict.LACKING
    assert kinds(other) == []
    assert other.saw(look(1, 2, 3, pid=3)) is Verdict.WHOLE
    assert kinds(other) == []


def test_a_name_that_was_named_has_to_be_back_in_the_next_process(judge: Judge) -> None:
    judge.told(["not kept: thing (No module named 'chaos_module')"])
    judge.saw(without("thing", 2))
    assert judge.unsaid(without("thing", 3))
    judge.saw(without("thing", 3))
    assert kinds(judge) == ["name dropped"]


def test_a_torn_cell_is_nobodys_fault(judge: Judge) -> None:
    judge.ran(Entry(4, 8, certain=False), torn=True)
    assert judge.saw(look(1, 2, 3, 4, begun=4, n=3)) is Verdict.SPOILT
    assert kinds(judge) == []


def test_a_cell_may_take_a_minute_beside_what_is_excused(judge: Judge) -> None:
    judge.took(8, 59, 0)
    judge.took(9, 90, 31)
    assert kinds(judge) == []
    judge.took(10, 90, 29)
    assert kinds(judge) == ["slow"]


def test_the_kernels_own_variables_stay(judge: Judge) -> None:
    judge.kernel_counted(1)
    judge.kernel_counted(2)
    assert kinds(judge) == []
    judge.kernel_counted(1)
    assert kinds(judge) == ["kernel"]


def test_the_model_says_what_the_cells_do(tmp_path: Path) -> None:
    lines = [SETUP, *(f"step({number})" for number in (11, 12, 13, 999)), looking()]
    program = "\n".join(lines).replace("from nls_jupyter import xp", "import numpy as xp")
    environment = nls_environment(CHAOS_FLAGS=str(tmp_path))
    environment["PYTHONPATH"] += f":{CHAOS / 'modules'}"
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(out.stdout.removeprefix(LOOKED))
    assert {name: found[name] for name in expected((11,))} == expected((11, 12, 13, 999))
    assert set(found["names"]) == NAMES


def test_saved_state_that_is_damaged_is_a_finding_also_where_it_is_said() -> None:
    judge = Judge()
    judge.told(["GPU: 20 variables kept; could not be restored: big (its part of the saved state is damaged)."])
    judge.told(["gave up after 3 failures in a row: SavedStateDamagedError: its part of the saved state is damaged."])
    assert [finding.kind for finding in judge.findings] == ["damaged state"] * 2
