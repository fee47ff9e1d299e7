"""How long `nls simulate` takes as notebooks and GPUs grow, and how near the daemon comes to what is asked of it.

Prints seconds of processor time for a play of a day under this daemon's own step, by notebooks and by GPUs; the same
for a week of 40 notebooks on 8 GPUs under each policy; and for 18 notebooks that ask for half of one of 8 GPUs, over a
week, the part of their cells that had it within a second, for several seeds. With NLS_KEEP=1 also draws the growth.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import machine, report

from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.plays import Play, play_one
from nls_scheduler.what_if.policies import TITLES
from nls_scheduler.what_if.scenario import Node, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nls_scheduler.what_if.play.figures import Figures

GPU_BYTES = 80 * 2**30
DAY_S = 86400.0
NOTEBOOKS = (9, 18, 36, 54)
GPUS = (4, 8, 16)
MOST_ON_A_GPU = 5
AIM = 0.999
IMAGE = Path(__file__).parent.parent / "docs" / "images" / "simulation_growth.svg"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 320, 60, 46, 44
COLOURS = ("#1976d2", "#e65100", "#2e7d32", "#6a1b9a")


def played(notebooks: int, days: float, gpus: int, policy: str, seed: int = 1) -> tuple[float, Figures]:
    scenario = Scenario(Recipe(notebooks, days * DAY_S, seed=seed), Node(gpus, GPU_BYTES))
    began = time.process_time()
    figures = play_one(Play(scenario, policy))
    return time.process_time() - began, figures


def growth() -> list[dict[str, Any]]:
    """Seconds by notebooks, for each number of GPUs; at most five on a GPU: beyond that everybody waits."""
    rows = []
    for gpus in GPUS:
        for notebooks in NOTEBOOKS:
            if notebooks <= MOST_ON_A_GPU * gpus:
                seconds, figures = played(notebooks, 1, gpus, "nls-on-demand")
                cells = figures.waits.count
                rows.append({"gpus": gpus, "notebooks": notebooks, "cells": cells, "seconds": round(seconds, 2)})
    return rows


def a_week_of_forty() -> dict[str, float]:
    return {policy: round(played(40, 7, 8, policy)[0], 1) for policy in TITLES}


def at_once(seeds: int) -> dict[str, Any]:
    """Of a week of 18 notebooks on 8 GPUs."""
    shares = [played(18, 7, 8, "nls-on-demand", seed)[1].share_at_once for seed in range(1, seeds + 1)]
    mean = sum(shares) / len(shares)
    return {"by_seed": [round(share, 5) for share in shares], "mean": round(mean, 5), "aim": AIM, "met": mean >= AIM}


def drawn(rows: Sequence[dict[str, Any]]) -> str:
    """Seconds by notebooks, a line for each number of GPUs; both axes linear."""
    most_x, most_y = max(row["notebooks"] for row in rows), max(row["seconds"] for row in rows)

    def at(notebooks: float, seconds: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 110) * notebooks / most_x
        return round(x, 1), round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * seconds / most_y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 22, "A day of notebooks under the daemon's own step: seconds by notebooks", 14),
    ]
    for part in range(5):
        x, y = at(0, most_y * part / 4)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - 110}" y2="{y}" stroke="#ddd"/>')
        parts.append(text(x - 42, y + 4, f"{most_y * part / 4:.1f}"))
    for notebooks in sorted({row["notebooks"] for row in rows}):
        x, y = at(notebooks, 0)
        parts.append(text(x - 8, y + 18, str(notebooks)))
    for colour, gpus in zip(COLOURS, sorted({row["gpus"] for row in rows}), strict=False):
        points = [at(row["notebooks"], row["seconds"]) for row in rows if row["gpus"] == gpus]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(text(WIDTH - 100, TOP + 18 * COLOURS.index(colour) + 10, f"{gpus} GPUs", fill=colour))
    return "\n".join([*parts, "</svg>", ""])


def text(x: float, y: float, words: str, size: int = 12, fill: str = "#333") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}">{escape(words)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    rows = growth()
    sys.stderr.write(f"{rows}\n")
    if os.environ.get("NLS_KEEP") == "1":
        IMAGE.write_text(drawn(rows))
    report(
        "simulation",
        {"growth": rows, "a_week_of_40_on_8_gpus_s": a_week_of_forty(), "at_once": at_once(options.seeds)},
        machine(),
    )


if __name__ == "__main__":
    main()
