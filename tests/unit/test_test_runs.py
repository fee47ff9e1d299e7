"""What `make test` draws is the same everywhere, what it leaves out is said; `make explore` draws anew and repeats."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from left_out import LeftOut, thinned

if TYPE_CHECKING:
    from types import ModuleType

TOOL = Path(__file__).parents[2] / "tools" / "explore.py"
PROFILE = "from hypothesis import settings\nsettings.register_profile('explore', database=None, print_blob=True)\n"
PROPERTY = """
from hypothesis import given, strategies as st

@given(st.integers(0, 2**64))
def test_nothing_is_large(number):
    assert number < 1000

def test_that_draws_nothing():
    raise AssertionError("explored although it draws nothing")
"""


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("explore", TOOL)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def outcome(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *options: str) -> object:
    monkeypatch.setattr(sys, "argv", ["explore.py", *options])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    return ended.value.code


def test_examples_are_the_same_everywhere_however_busy_and_nothing_is_remembered() -> None:
    assert hypothesis.settings.default.derandomize
    assert hypothesis.settings.default.deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings.default.suppress_health_check
    assert hypothesis.settings.default.database is None
    assert hypothesis.settings.get_profile("explore").derandomize is False


@pytest.mark.long("runs of tests that are tests themselves")
@pytest.mark.timeout(300)  # pytest in a process of its own
def test_a_round_finds_a_broken_property_shows_its_example_and_tries_nothing_else(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text(PROFILE)
    (tmp_path / "test_property.py").write_text(PROPERTY)
    (name,) = tool.explored(5, [str(tmp_path / "test_property.py")])
    assert name.endswith("test_property.py::test_nothing_is_large")
    assert "@reproduce_failure(" in capsys.readouterr().out


@hypothesis.given(hypothesis.strategies.integers(0, 2**64))
def no_number_is_large(number: int) -> None:
    assert number < 1000


def test_the_example_of_a_broken_property_is_printed() -> None:
    with pytest.raises(AssertionError) as broken:
        no_number_is_large()
    assert any("number=1000," in note for note in broken.value.__notes__)


def test_every_file_that_draws_is_explored(tool: ModuleType) -> None:
    files = tool.properties()
    assert {"tests/properties/test_packing.py", "tests/integration/test_interface_contract.py"} <= set(files)
    assert "tests/stories/test_gangs.py" not in files


def test_what_is_found_ends_with_an_error_and_the_seed_that_finds_it_again(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(tool, "explored", lambda seed, _: seeds.append(seed) or ["test_it"])
    assert outcome(tool, monkeypatch, "--minutes", "0") == 1
    told = capsys.readouterr().out
    assert told.endswith("1 rounds, 1 failures in 1 of them\n")
    (again,) = re.findall(r"make explore SEED=(\d+)", told)
    assert outcome(tool, monkeypatch, "--seed", again) == 1
    assert seeds == [int(again)] * 2


def test_nothing_found_is_no_error_and_rounds_differ(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(tool, "explored", lambda seed, _: seeds.append(seed) or [])
    monkeypatch.setattr(tool.time, "monotonic", lambda: 20.0 * len(seeds))
    assert outcome(tool, monkeypatch, "--minutes", "1") == 0
    assert len(set(seeds)) == 3
    assert capsys.readouterr().out.endswith("3 rounds, 0 failures in 0 of them\n")


class Reporter:
    """What a run writes at its end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(title)

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def told_by(plugin: LeftOut) -> list[str]:
    reporter: Any = Reporter()
    plugin.pytest_terminal_summary(reporter)
    return reporter.lines


def items(*reasons: str | None) -> list[Any]:
    marks = [None if reason is None else pytest.mark.long(reason).mark for reason in reasons]
    return [SimpleNamespace(get_closest_marker=lambda _, mark=mark: mark) for mark in marks]


def config(expression: str, **more: object) -> Any:
    return SimpleNamespace(option=SimpleNamespace(markexpr=expression), **more)


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_left_out_is_said_once_with_its_reason(*, apart: bool) -> None:
    here = LeftOut(config("not long"))
    if apart:
        outputs: list[dict[str, object]] = [{}, {}]
        for output in outputs:
            LeftOut(config("not long", workeroutput=output)).pytest_deselected(items("slow", "slow", None, "large"))
            here.pytest_testnodedown(SimpleNamespace(workeroutput=output))
    else:
        here.pytest_deselected(items("slow", "slow", None, "large"))
    title, *reasons = told_by(here)
    assert title == "left out here, and run by `make test-long`"
    assert reasons == ["    1 large", "    2 slow"]


def test_what_nobody_asked_for_is_not_called_left_out() -> None:
    plugin = LeftOut(config("long"))
    plugin.pytest_deselected(items("slow"))
    assert told_by(plugin) == []


def test_one_in_so_many_stays_and_the_others_are_long() -> None:
    rows = thinned(["one", ("two", 2), "three", "four"], 3, "numbers")
    assert [row.values for row in rows] == [("one",), ("two", 2), ("three",), ("four",)]
    assert [[mark.name for mark in row.marks] for row in rows] == [[], ["long"], ["long"], []]
