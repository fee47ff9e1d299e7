"""What a save keeps the next cell waiting: cells that change something, with pauses, beside a plain kernel.

For some states that notebooks have, the same cells run in a plain kernel and in a GPU process, whose variables are
saved after each of them. A pause lets the next cell come in the middle of a save as often as before and after it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from typing import Any

from machine import machine, report

from kernels import Kernel, daemon, milliseconds

SEED = 20261122
STATES = {
    "numbers": ("x = 0", "x += 1"),
    "a table": (
        "import pandas as pd\ntable = pd.DataFrame({'a': range(10**6), 'b': [str(i) for i in range(10**6)]})\nx = 0",
        "x += 1; table.loc[x, 'a'] = -1",
    ),
    "200,000 dicts": ("rows = [{'id': i, 'tags': [i]} for i in range(200_000)]", "rows[7]['id'] += 1"),
    "a figure": (
        "from matplotlib.figure import Figure\nfigure = Figure(); axes = figure.subplots(4, 4); x = 0",
        "x += 1; axes[0][0].set_title(str(x))",
    ),
    "100 MB of arrays": (
        "import numpy as np\narrays = [np.ones(125_000) for _ in range(100)]\nx = 0",
        "x += 1; arrays[x % 100][0] = x",
    ),
}


async def compare(environment: dict[str, str], state: str, cells: int) -> dict[str, Any]:
    make, change = STATES[state]
    chance = random.Random(SEED)
    async with Kernel(environment) as plain, Kernel(environment) as gpu:
        await plain.run(make)
        await gpu.run(f"%%gpu\n{make}")
        taken: dict[str, list[float]] = {"plain": [], "gpu": []}
        for _ in range(cells):
            pause_s = chance.choice([0.0, chance.uniform(0.0, 0.05), chance.uniform(0.05, 0.5)])
            for name, kernel, cell in (("plain", plain, change), ("gpu", gpu, f"%%gpu\n{change}")):
                await asyncio.sleep(pause_s)
                seconds, _ = await kernel.run(cell)
                taken[name].append(seconds)
    figures = {name: milliseconds(seconds) for name, seconds in taken.items()}
    more = {name: round(figures["gpu"][name] - figures["plain"][name], 2) for name in figures["plain"]}
    return {**figures, "gpu_minus_plain": more}


async def measure(cells: int, states: list[str]) -> dict[str, Any]:
    found = {}
    for state in states:
        async with daemon() as environment:
            found[state] = await compare(environment, state, cells)
    return {"seed": SEED, "cells": cells, "states": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--state", action="append", choices=STATES, help="only this one; repeatable")
    options = parser.parse_args()
    report("after_saves", asyncio.run(measure(options.cells, options.state or list(STATES))), machine())


if __name__ == "__main__":
    main()
