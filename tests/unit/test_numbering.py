from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nls_jupyter.between.numbering import inputs_from, number_next_cell


class History:
    def __init__(self) -> None:
        self.input_hist_raw = [""]
        self.input_hist_parsed = [""]
        self.sessions = 1

    def writeout_cache(self) -> None:
        pass

    def new_session(self) -> None:
        self.sessions += 1


@pytest.fixture
def shell() -> Any:
    return SimpleNamespace(history_manager=History(), execution_count=1)


def nothing(start: int) -> tuple[list[str], list[str]]:
    raise AssertionError(f"asked for inputs from {start} on")


def ran(shell: Any, code: str) -> None:
    shell.history_manager.input_hist_raw.append(code)
    shell.history_manager.input_hist_parsed.append(code.upper())
    shell.execution_count += 1


def test_cells_that_ran_elsewhere_keep_their_inputs(shell: Any) -> None:
    number_next_cell(shell, 3, lambda start: (["a", "b", "this one"][start - 1 :], ["A", "B", "THIS"][start - 1 :]))
    assert shell.execution_count == 3
    assert shell.history_manager.input_hist_raw == ["", "a", "b"]
    assert shell.history_manager.input_hist_parsed == ["", "A", "B"]


def test_inputs_that_nobody_stored_are_empty(shell: Any) -> None:
    number_next_cell(shell, 3, lambda _: ([], ["A"]))
    assert shell.history_manager.input_hist_raw == ["", "", ""]
    assert shell.history_manager.input_hist_parsed == ["", "A", ""]


def test_cells_in_a_row_ask_for_nothing_and_stay_in_one_session(shell: Any) -> None:
    for count, code in enumerate("abc", start=1):
        number_next_cell(shell, count, nothing)
        ran(shell, code)
    assert shell.history_manager.input_hist_raw == ["", "a", "b", "c"]
    assert shell.history_manager.sessions == 1


def test_a_number_that_comes_again_replaces_the_cell_in_a_session_of_its_own(shell: Any) -> None:
    for code in "ab":
        number_next_cell(shell, 1, nothing)
        ran(shell, code)
    assert shell.history_manager.input_hist_raw == ["", "b"]
    assert (shell.execution_count, shell.history_manager.sessions) == (2, 2)


def test_the_notebook_tells_what_it_has_from_a_number_on(shell: Any) -> None:
    ran(shell, "a")
    ran(shell, "b")
    assert inputs_from(shell, 2) == (["b"], ["B"])
    assert inputs_from(shell, 9) == ([], [])
