"""Says at the end of a run which tests of `make test-long` it left out, and why each kind takes long.

A plugin of `conftest`; side by side, each process tells the one that reports what it has left out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_KEY = "left_out_as_long"


def thinned(values: Iterable[Any], every: int, why: str) -> list[Any]:
    """For `parametrize`: one in `every`, the first to begin with, is run by `make test`; all others are long."""
    long = pytest.mark.long(f"{why}: one in {every} is run here")
    params: list[Any] = []
    for number, value in enumerate(values):
        row, marks = (value.values, value.marks) if hasattr(value, "marks") else (value, ())
        row = row if isinstance(row, tuple) else (row,)
        params.append(pytest.param(*row, marks=marks if number % every == 0 else (*marks, long)))
    return params


class LeftOut:
    """How many tests were deselected for each reason of their `long` mark."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reasons: Counter[str] = Counter()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Those that `-m "not long"` left out; not those that no `-k` asks for."""
        if "not long" in self._config.option.markexpr:
            marks = (item.get_closest_marker("long") for item in items)
            self._reasons.update(mark.args[0] for mark in marks if mark is not None)
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_KEY] = dict(self._reasons)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """All processes collect the same: one of them is enough."""
        self._reasons = Counter(getattr(node, "workeroutput", {}).get(_KEY, {})) or self._reasons

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """After the reasons of skipped tests, before the summary's line."""
        if self._reasons:
            terminalreporter.section("left out here, and run by `make test-long`")
            for reason, count in sorted(self._reasons.items()):
                terminalreporter.write_line(f"{count:5d} {reason}")
