"""What a save may cost: a twentieth of the time that cells have run since the last one, and always a little."""

from __future__ import annotations

import time
from typing import Any

_ALWAYS_S = 0.05
_PART_OF_RUN_TIME = 0.05


class RunTime:
    """Counts the time that cells run in one shell; callbacks of its events."""

    def __init__(self) -> None:
        self._run_s = 0.0
        self._began: float | None = None

    def follow(self, shell: Any) -> None:
        """Have IPython tell when a cell begins and ends."""
        shell.events.register("pre_run_cell", self.begin)
        shell.events.register("post_run_cell", self.end)

    def begin(self, *_: Any) -> None:
        """A cell begins."""
        self._began = time.monotonic()

    def end(self, *_: Any) -> None:
        """It has ended."""
        if self._began is not None:
            self._run_s += time.monotonic() - self._began
            self._began = None

    def budget_s(self) -> float:
        """What a save may cost now; grows until one was finished."""
        return max(_ALWAYS_S, _PART_OF_RUN_TIME * self._run_s)

    def saved(self) -> None:
        """A save was finished."""
        self._run_s = 0.0
