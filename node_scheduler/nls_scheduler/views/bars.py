"""How a Gpu's memory is divided, for its bar: the same pieces as in JupyterLab's panel. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Piece:
    """So many parts of a bar. `workload`: whose, by id; `None`: nobody's of the daemon's."""

    kind: str
    workload: str | None
    cells: int


def burst_bytes(workload: Mapping[str, Any]) -> float:
    """What it uses above its request on each of its Gpus: may be taken back at any time."""
    if workload["phase"] != "running":
        return 0
    each: float = workload["memory_used_bytes"] / max(1, len(workload["current"]))
    return max(0.0, each - float(workload["request_bytes"]))


def pieces(gpu: Mapping[str, Any], workloads: Iterable[Mapping[str, Any]], cells: int) -> list[Piece]:
    """Of each workload on the Gpu what it is guaranteed, used or not, and its burst; then the unplaced, then the free.

    They are `cells` parts together, also where more is used than there is.
    """
    parts: list[tuple[str, str | None, float]] = []
    for workload in (w for w in workloads if gpu["uuid"] in w["current"]):
        parts.append(("guaranteed", workload["id"], workload["request_bytes"]))
        parts.append(("burst", workload["id"], burst_bytes(workload)))
    parts.append(("unplaced", None, gpu["unplaced_bytes"]))
    taken = sum(part[2] for part in parts)
    parts.append(("free", None, max(0, gpu["memory_total_bytes"] - taken)))
    widths = _divided([part[2] for part in parts], cells)
    return [Piece(kind, whose, width) for (kind, whose, _), width in zip(parts, widths, strict=True) if width]


def _divided(sizes: Sequence[float], cells: int) -> list[int]:
    """`cells` in proportion to the sizes; the borders are rounded, so that the sum is right."""
    whole, reached, widths = max(1.0, sum(sizes)), 0.0, list[int]()
    border = 0
    for size in sizes:
        reached += size
        upto = round(cells * reached / whole)
        widths.append(upto - border)
        border = upto
    return widths
