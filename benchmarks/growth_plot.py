"""Draws how a step's time grows with the node, as an SVG in `docs/images`; called by `step_latency`."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "step_latency.svg"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 340, 60, 50, 40, 130
CLOSE = 24
"""Two sizes nearer to each other are not both written below the axis."""
COLOURS = ("#1976d2", "#90caf9", "#e65100", "#ffcc80")


def series(growth: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """p99 and p50 in milliseconds, without queues and with them, by size."""
    return {
        "p99": [row["p99_ms"] for row in growth],
        "p50": [row["p50_ms"] for row in growth],
        "p99, queues": [row["with_queues"]["p99_ms"] for row in growth],
        "p50, queues": [row["with_queues"]["p50_ms"] for row in growth],
    }


def drawn(growth: Sequence[dict[str, Any]]) -> str:
    """The SVG: both axes linear, workloads from left to right; a cross where p99 is bounded."""
    most_x = max(row["workloads"] for row in growth)
    bounds = [(row["workloads"], row["p99_bound_ms"]) for row in growth if row["p99_bound_ms"]]
    lines = series(growth)
    most_y = max([*(value for values in lines.values() for value in values), *(bound for _, bound in bounds)])

    def at(workloads: float, milliseconds: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * workloads / most_x
        return round(x, 1), round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * milliseconds / most_y, 1)

    parts = [_text(LEFT, 22, "One step: milliseconds by workloads (16 GPUs from 80 on, at most 8 before)", size=14)]
    written = 0.0
    for row in reversed(growth):
        x, y = at(row["workloads"], 0)
        if not written or written - x > CLOSE:
            parts.append(_text(x - 8, y + 18, str(row["workloads"])))
            written = x
    for part in range(5):
        value = most_y * part / 4
        x, y = at(0, value)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(x - 40, y + 4, f"{value:.1f}"))
    for number, (name, values) in enumerate(lines.items()):
        points = [at(row["workloads"], value) for row, value in zip(growth, values, strict=True)]
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[number]}" stroke-width="2"/>')
        parts.append(_text(WIDTH - RIGHT + 10, TOP + 18 * number + 10, name, fill=COLOURS[number]))
    for workloads, bound in bounds:
        x, y = at(workloads, bound)
        parts.append(f'<path d="M{x - 4},{y - 4} l8,8 m0,-8 l-8,8" stroke="#555" stroke-width="2"/>')
    parts.append(_text(WIDTH - RIGHT + 10, TOP + 18 * len(lines) + 10, "× bound of p99", fill="#555"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>", ""])


def _text(x: float, y: float, words: str, *, size: int = 12, fill: str = "#333") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}">{escape(words)}</text>'


def draw(growth: Sequence[dict[str, Any]]) -> None:
    """Write the image."""
    IMAGE.write_text(drawn(growth))
