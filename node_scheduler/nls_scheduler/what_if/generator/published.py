"""What is published of notebooks on GPUs: the figures that the generator is fitted to.

Source: a public notebook cluster's records of two days, as percentiles of its GPU cells, the gaps between them, their
memory, and its sessions; compare NotebookOS (ASPLOS '26), whose trace has half of the tasks within 2 min, a median gap
of 5 min, and GPUs idle for 81 % of the reserved time.
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

CELL_MIN: Final = {0.25: 6.0, 0.5: 11.0, 0.75: 21.0, 0.9: 41.0, 0.95: 72.0}
"""How long cells last, in minutes, by percentile."""
GAP_MIN: Final = {0.5: 3.0, 0.75: 8.0, 0.9: 41.0, 0.95: 145.0}
"""From a cell's end to the session's next one, in minutes."""
MEMORY_GB: Final = {0.5: 2.3, 0.75: 4.6, 0.9: 18.1, 0.95: 31.2, 1.0: 39.0}
"""What a cell holds on its Gpu, in 10^9 bytes."""
SESSION_H: Final = 21.0
"""How long a session lives at the median, in hours."""
ACTIVE: Final = (0.19, 0.28)
"""Which part of its life a session computes, over whole workloads."""
PEAK: Final = 7 / 18
"""The most Gpus in use at once, as a part of the most that were reserved at once."""


class Quantiles:
    """A distribution given by some of its percentiles, log-linear between them."""

    def __init__(self, known: Mapping[float, float], least: float, most: float | None = None) -> None:
        """`least` and `most` are the percentiles 0 and 1, which nobody has published."""
        ends = {0.0: least} | ({} if most is None else {1.0: most})
        self._points = sorted({**known, **ends}.items())

    def at(self, part: float) -> float:
        """The value below which `part` (0 to 1) of all are."""
        for (low, below), (high, above) in zip(self._points, self._points[1:], strict=False):
            if part <= high:
                return float(exp(log(below) + (log(above) - log(below)) * (part - low) / (high - low)))
        return self._points[-1][1]
