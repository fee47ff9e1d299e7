"""A workload's own percentiles, beside the published ones."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.what_if.generator import published
from nls_scheduler.what_if.workload_file.rows import Cell, Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nls_scheduler.what_if.workload_file.rows import Row

MOST_LOOKED_AT = 200_000
"""Rows: percentiles of more would be the same, and take memory."""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: the workload's own, and the published one (a text where that is a range)."""

    what: str
    own: float
    published: str
    unit: str


def portrait(rows: Iterable[Row]) -> list[Line]:
    """The table of the first `MOST_LOOKED_AT` rows; none where there is no cell."""
    lengths: list[float] = []
    gaps: list[float] = []
    memory: list[float] = []
    lives: list[float] = []
    last_end: dict[str, float] = {}
    computing: list[tuple[float, int]] = []
    reserved: list[tuple[float, int]] = []
    for _, row in zip(range(MOST_LOOKED_AT), rows, strict=False):
        if isinstance(row, Session):
            lives.append(row.end_s - row.begin_s)
            reserved += [(row.begin_s, 1), (row.end_s, -1)]
            last_end.pop(row.name, None)
        elif isinstance(row, Cell):
            lengths.append(row.length_s)
            memory.append(row.memory_bytes)
            if row.name in last_end:
                gaps.append(row.begin_s - last_end[row.name])
            last_end[row.name] = row.end_s
            computing += [(row.begin_s, 1), (row.end_s, -1)]
    if not lengths or not lives:
        return []
    low, high = published.ACTIVE
    return [
        *_lines("cell", lengths, 60.0, published.CELL_MIN, "min"),
        *_lines("gap between cells", gaps, 60.0, published.GAP_MIN, "min"),
        *_lines("memory", memory, 1e9, published.MEMORY_GB, "GB"),
        Line("session, p50", _percentile(sorted(lives), 0.5) / 3600, f"{published.SESSION_H:g}", "h"),
        Line("of it computing", 100 * sum(lengths) / sum(lives), f"{100 * low:.0f} to {100 * high:.0f}", "%"),
        Line(
            "most computing of most open",
            100 * _peak(computing) / _peak(reserved),
            f"{100 * published.PEAK:.0f}",
            "%",
        ),
    ]


def _lines(
    what: str, values: Sequence[float], factor: float, known: Mapping[float, float], unit: str
) -> Iterable[Line]:
    in_order = sorted(values)
    for part, value in known.items():
        name = "most" if part == 1.0 else f"p{100 * part:.0f}"
        yield Line(f"{what}, {name}", _percentile(in_order, part) / factor, f"{value:g}", unit)


def _percentile(in_order: Sequence[float], part: float) -> float:
    return in_order[min(len(in_order) - 1, int(part * len(in_order)))] if in_order else 0.0


def _peak(changes: list[tuple[float, int]]) -> int:
    heapq.heapify(changes)
    now = most = 0
    counts: dict[float, int] = defaultdict(int)
    while changes:
        at, change = heapq.heappop(changes)
        counts[at] += change
        if not changes or changes[0][0] != at:
            now += counts.pop(at)
            most = max(most, now)
    return most
