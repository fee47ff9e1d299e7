"""`%%gpu --retry`: whether a cell that lost its GPU process is run again."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_jupyter.between.errors import GpuEvicted, GpuProcessDied, GpuReclaimed

if TYPE_CHECKING:
    from nls_jupyter.supervisor.kept_state import SavedState

# Others took the GPU: the cell is not to blame. A cell under which the process crashed twice probably is.
EVICTIONS = 3
CRASHES = 1
LOST = (GpuEvicted, GpuProcessDied, GpuReclaimed)


@dataclass(slots=True)
class Retries:
    """The attempts of one cell.

    What a broken attempt has put out stays in the document, and the line that announces the next attempt parts the two:
    clearing would throw away hours of a training's log, and the line itself with it.
    """

    attempt: int = 1
    evictions: int = 0
    crashes: int = 0

    def again(self, error: BaseException) -> bool:
        """Whether the cell that ended with `error` is to be run once more; counts it."""
        if isinstance(error, GpuProcessDied):
            self.crashes += 1
        else:
            self.evictions += 1
        self.attempt += 1
        return isinstance(error, LOST) and self.crashes <= CRASHES and self.evictions <= EVICTIONS

    def announce(self, error: BaseException, saved: SavedState | None) -> None:
        """Tell the user on the cell's stderr."""
        print(f"GPU: {self.line(error, saved)}.", file=sys.stderr, flush=True)  # noqa: T201 - where users look

    def line(self, error: BaseException, saved: SavedState | None) -> str:
        """What the user reads before the next attempt. `saved`: what the GPU process comes back with."""
        if isinstance(error, GpuReclaimed):
            what, on = str(error).partition(". ")[0], "its variables as they were then"
        else:
            what = error.what if isinstance(error, GpuEvicted | GpuProcessDied) else str(error)
            on = "no variables, as none were saved" if saved is None else f"the variables of cell {saved.manifest.cell}"
        return f"{what}; running the cell again on {on} (attempt {self.attempt})"
