"""The best that can be done by who knows the future, moves for nothing, and runs a cell at its time or never: a bound.

Source: of intervals on k equal machines the most are kept by dropping, whenever there are too many, the one that ends
last (Faigle and Nawijn, "Note on scheduling intervals on-line", 1995). A Gpu counts as many machines as the smallest
request fits in it, which is exact where all ask for the same, and a cell may begin as late as still counts as at once.
Cells are taken at their recorded times, and commands not at all. Who lets a user wait may come out above: whoever waits
runs all later cells later, where the GPUs may be free.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from nls_scheduler.what_if.play.figures import AT_ONCE_S
from nls_scheduler.what_if.workload_file.rows import Cell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nls_scheduler.what_if.workload_file.rows import Row


def places_of(least_request_bytes: int | None, gpu_bytes: int) -> int:
    """How many of the smallest request of a session fit on one Gpu; 1 without any session."""
    return max(1, gpu_bytes // (least_request_bytes or gpu_bytes))


def bound(rows: Iterable[Row], places: int) -> float:
    """The largest part of all cells that can run at once, each at its time, on so many places. Rows in order."""
    ends: list[float] = []
    cells = dropped = 0
    for row in rows:
        if not isinstance(row, Cell):
            continue
        cells += 1
        del ends[: bisect_right(ends, row.begin_s)]
        if row.length_s <= AT_ONCE_S:
            continue  # nobody needs to be in its way
        insort(ends, row.end_s - AT_ONCE_S)
        if len(ends) > places:
            ends.pop()
            dropped += 1
    return 1.0 - dropped / cells if cells else 1.0
