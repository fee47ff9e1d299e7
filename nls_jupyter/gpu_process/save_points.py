"""`save_point()`: keeps what a long-running cell has reached so far, as often as that is cheap."""

from __future__ import annotations

import sys

# A save may cost this much at once, and this share of the run time since the last one.
FREE_S = 0.05
SHARE = 0.05


def save_point() -> bool:
    """Save the notebook's variables now, in the middle of a cell that runs in the GPU process.

    For long loops: if the process is taken away or dies later in the cell, it comes back with these variables. Names
    of the notebook are saved, local variables of functions are not. Cheap when called often: a save may cost 5 % of
    the run time since the last one (the first one in a cell: 50 ms at least), and before that the call returns at
    once. After `GpuReclaimed` it always saves.

    Returns:
        Whether the variables were saved. False also outside of a GPU process, in another thread than the cell's own,
        and in a forked child.
    """
    kernel = sys.modules.get("nls_jupyter.gpu_process.kernel")
    return kernel is not None and bool(kernel.save_point())


class SavePointBudget:
    """When a save point may be taken. Pure: times are the caller's, of one monotonic clock in seconds."""

    def __init__(self) -> None:
        self._cost_s = 0.0
        self._since_s = 0.0
        self._first = True

    def cell_began(self, now_s: float) -> None:
        """Time between cells is not run time, and each cell's first save point is free up to `FREE_S`."""
        self._since_s = now_s
        self._first = True

    def allows(self, now_s: float) -> bool:
        """Whether a save that costs as much as the last one may be made now."""
        budget_s = SHARE * (now_s - self._since_s)
        return self._cost_s <= (max(budget_s, FREE_S) if self._first else budget_s)

    def saved(self, began_s: float, ended_s: float) -> None:
        """A save was made, in a cell or after one."""
        self._cost_s = ended_s - began_s
        self._since_s = ended_s
        self._first = False
