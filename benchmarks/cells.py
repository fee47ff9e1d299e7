"""What a cell in the GPU process costs beside a plain one: latency, the first cell, memory, and stream output.

The kinds of cell take turns in one run, so that a busy machine slows all of them alike. Ratios are over a plain kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from importlib.util import find_spec
from typing import Any

import nbformat
from machine import machine, report
from nbclient import NotebookClient

from kernels import Kernel, daemon, memory_mib, milliseconds, ratios

WARM_UP = 20
LINES = 1000
_LOOK_EVERY_S = 0.5
_STANDS_BY = "print(get_ipython().magics_manager.registry['GpuMagics'].gpu_of_notebook.supervisor.keeper.standby.ready)"
FLOOD_BYTES = 100 * 10**6
_FLOOD = f"line = 'x' * 99 + '\\n'\nfor _ in range({FLOOD_BYTES} // 100): print(line, end='')"


async def latency(plain: Kernel, gpu: Kernel, auto: Kernel | None, cells: int) -> dict[str, Any]:
    kinds = {"plain": (plain, "pass"), "gpu": (gpu, "%%gpu\npass")}
    if auto is not None:
        kinds["auto"] = (auto, "pass")
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(cells + WARM_UP):
        for name, (kernel, code) in kinds.items():
            seconds, _ = await kernel.run(code)
            if number >= WARM_UP:
                taken[name].append(seconds)
    figures = {name: milliseconds(seconds) for name, seconds in taken.items()}
    over = {f"{name}_over_plain": ratios(figures[name], figures["plain"]) for name in figures if name != "plain"}
    return {**figures, **over, "cells": cells}


async def flood(kernel: Kernel, code: str) -> float:
    began = time.perf_counter()
    _, printed = await kernel.run(code)
    if len(printed) != FLOOD_BYTES:
        raise RuntimeError(f"{len(printed)} of {FLOOD_BYTES} bytes arrived")
    return FLOOD_BYTES / 1e6 / (time.perf_counter() - began)


async def with_pytorch(plain: Kernel, gpu: Kernel) -> dict[str, float]:
    """Host memory of notebooks with PyTorch, where a process stands by."""
    await plain.run("import torch")
    await gpu.run("%%gpu\nimport torch")
    while (await gpu.run(_STANDS_BY))[1].strip() != "True":
        await asyncio.sleep(_LOOK_EVERY_S)
    return memories(plain, gpu)


def memories(plain: Kernel, gpu: Kernel) -> dict[str, float]:
    """Host memory of a notebook, its GPU process and what belongs to that, beside a plain one's."""
    plain_mib, gpu_mib = memory_mib([plain.pid]), memory_mib([gpu.pid])
    return {"plain_mib": plain_mib, "gpu_mib": gpu_mib, "over_plain": round(gpu_mib / plain_mib, 2)}


async def whole_notebooks(environment: dict[str, str], auto_name: str) -> dict[str, float]:
    """Seconds for a notebook of `LINES` cells under nbclient, plain and in auto mode, with the start of the kernel."""
    taken: dict[str, list[float]] = {"plain": [], "auto": []}
    for _ in range(3):
        for name, kernel in (("plain", "python3"), ("auto", auto_name)):
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"x = {n}") for n in range(LINES)])
            began = time.perf_counter()
            await NotebookClient(notebook, kernel_name=kernel).async_execute(env=environment)
            taken[name].append(time.perf_counter() - began)
    plain_s, auto_s = (statistics.median(taken[name]) for name in ("plain", "auto"))
    return {"plain_s": round(plain_s, 1), "auto_s": round(auto_s, 1), "over_plain": round(auto_s / plain_s, 2)}


async def measure(cells: int, auto_name: str | None) -> dict[str, Any]:
    async with daemon() as environment, Kernel(environment) as plain, Kernel(environment) as gpu:
        first_s, _ = await gpu.run("%%gpu\npass")
        for _ in range(WARM_UP):
            await plain.run("pass")
            await gpu.run("%%gpu\npass")
        memory = {"nothing_imported": memories(plain, gpu)}
        auto = None if auto_name is None else await Kernel(environment, auto_name).__aenter__()
        try:
            first_auto_s = None if auto is None else (await auto.run("pass"))[0]
            found = await latency(plain, gpu, auto, cells)
        finally:
            if auto is not None:
                await auto.__aexit__()
        memory["after_all_cells"] = memories(plain, gpu)
        if find_spec("torch"):
            memory["pytorch"] = await with_pytorch(plain, gpu)
        notebooks = None if auto_name is None else await whole_notebooks(environment, auto_name)
        plain_mb_s, gpu_mb_s = await flood(plain, _FLOOD), await flood(gpu, f"%%gpu\n{_FLOOD}")
    return {
        "latency": found,
        "first_gpu_cell_s": round(first_s, 2),
        "first_auto_cell_s": None if first_auto_s is None else round(first_auto_s, 2),
        "plain_kernel_start_s": round(plain.first_idle_s, 2),
        "memory": memory,
        "nbclient": {"cells": LINES, **notebooks} if notebooks else None,
        "stream": {
            "plain_mb_per_s": round(plain_mb_s, 1),
            "gpu_mb_per_s": round(gpu_mb_s, 1),
            "over_plain": round(gpu_mb_s / plain_mb_s, 2),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument(
        "--auto", metavar="KERNEL", help="name of the kernelspec whose cells all run in the GPU process"
    )
    options = parser.parse_args()
    report("cells", asyncio.run(measure(options.cells, options.auto)), machine())


if __name__ == "__main__":
    main()
