"""What this process has on each of its devices beside what its libraries' allocators hold: its context, and libraries.

Counted by a constant until the driver has shown the process: with cuBLAS, cuDNN and their workspaces it is more, and
who fills what is allowed would be above its limit by that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nls_scheduler.processes.proc import CONTEXT_VARIABLE
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable

# The driver is asked as often as that at most.
_INTERVAL_S = 1.0
# The allocators' own granularity: less is no reason to set anything again.
_STEP_BYTES = 2 * 2**20


def _shown_by_the_driver(gpu: str) -> int | None:
    # Most processes never have anything to ask.
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.drivers.nvml_process import own_memory_bytes

    return own_memory_bytes(GpuUuid(gpu))


class Contexts:
    """By device, as CUDA numbers those that the process sees."""

    def __init__(
        self,
        shown: Callable[[str], int | None] = _shown_by_the_driver,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """`shown` gives what the driver shows of this process on the Gpu of a UUID; `clock` counts seconds."""
        self._shown = shown
        self._clock = clock
        self._measured: dict[int, int] = {}
        self._asked_at: dict[int, float] = {}

    def bytes(self, device: int) -> int:
        """As measured, else as the daemon counts it."""
        return self._measured.get(device, int(os.environ.get(CONTEXT_VARIABLE, "0")))

    def measure(self, device: int, held: Callable[[], int]) -> bool:
        """Ask the driver, unless it was asked just now. Returns whether it is another amount than before.

        `held` tells what the allocators have there: where that changes meanwhile, nothing is known.
        """
        now = self._clock()
        if now - self._asked_at.get(device, -_INTERVAL_S) < _INTERVAL_S:
            return False
        self._asked_at[device] = now
        before = held()
        shown = self._shown(gpu_of(device))
        if not shown or shown < before or held() != before:
            return False
        changed = abs(shown - before - self.bytes(device)) >= _STEP_BYTES
        if changed:
            self._measured[device] = shown - before
        return changed


def gpu_of(device: int) -> str:
    """UUID of a device by its number: the scheduler always masks by UUID."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return shown[device].strip() if device < len(shown) else ""
