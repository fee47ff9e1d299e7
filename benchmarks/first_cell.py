"""From a notebook's first GPU cell to its result, and back after a suspend: cold, and with a process that stands by.

    python benchmarks/first_cell.py --library torch               # or cupy; on real GPUs
    python benchmarks/first_cell.py --library torch --simulate 1x1GiB

The peer is a plain kernel that runs the same cell without any scheduler, from its start on.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from machine import machine, report

from kernels import Kernel, daemon

READY_WITHIN_S = 150.0
PAUSE_S = 0.1
CELLS = {
    "cupy": ("import cupy\nx = cupy.arange(1000.0)", "print(float(x.sum()))", "499500.0"),
    "torch": (
        "import torch\nx = torch.arange(1000.0, device='{device}')",
        "print(float(x.sum()))",
        "499500.0",
    ),
}
STANDS_BY = (
    "standby = get_ipython().magics_manager.registry['GpuMagics'].gpu_of_notebook.supervisor.keeper.standby\n"
    "print(standby is not None and standby.ready)"
)


def cells(library: str, simulate: str | None) -> tuple[str, str, str]:
    """What prepares, what asks, and what that prints; PyTorch's tensors are the host's where GPUs are simulated."""
    prepare, ask, expected = CELLS[library]
    return prepare.format(device="cuda" if simulate is None else "cpu"), ask, expected


async def until_stands_by(kernel: Kernel) -> float:
    """Seconds until a process stands by. Raises TimeoutError."""
    began = time.perf_counter()
    async with asyncio.timeout(READY_WITHIN_S):
        while (await kernel.run(STANDS_BY))[1].strip() != "True":
            await asyncio.sleep(PAUSE_S)
    return time.perf_counter() - began


async def cell(kernel: Kernel, code: str, expected: str) -> float:
    """Seconds of a GPU cell. Raises RuntimeError where it prints something else."""
    taken, printed = await kernel.run(f"%%gpu\n{code}")
    # Notices are in it too: they go to stderr.
    if printed.strip().splitlines()[-1] != expected:
        raise RuntimeError(f"{code!r} printed {printed!r}")
    return taken


async def with_scheduler(library: str, simulate: str | None, *, standby: bool) -> dict[str, float]:
    prepare, ask, expected = cells(library, simulate)
    async with daemon(simulate) as environment:
        own = environment if standby else {**environment, "NLS_STANDBY_MEMORY": "0"}
        async with Kernel(own) as kernel:
            await kernel.run("%gpu request 0.2 --limit 1.0")
            figures = {"first_cell_s": await cell(kernel, f"{prepare}\n{ask}", expected)}
            figures["next_cell_s"] = await cell(kernel, ask, expected)
            await kernel.run("%gpu save")
            if standby:
                figures["stands_by_after_s"] = await until_stands_by(kernel)
            await kernel.run("%gpu suspend")
            figures["cell_after_suspend_s"] = await cell(kernel, ask, expected)
    return figures


async def plain(library: str, simulate: str | None) -> float:
    prepare, ask, _ = cells(library, simulate)
    async with daemon() as environment, Kernel(environment) as kernel:
        return (await kernel.run(f"{prepare}\n{ask}"))[0]


async def measure(library: str, simulate: str | None) -> dict[str, Any]:
    peer = await plain(library, simulate)
    cold = await with_scheduler(library, simulate, standby=False)
    warm = await with_scheduler(library, simulate, standby=True)
    figures = {f"cold_{name}": value for name, value in cold.items()}
    figures |= {f"standby_{name}": value for name, value in warm.items()}
    figures |= {"plain_first_cell_s": peer, "first_cell_over_plain": cold["first_cell_s"] / peer}
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=CELLS, default="torch")
    parser.add_argument("--simulate", metavar="COUNTxSIZE", help="simulated GPUs instead of real ones")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.library, options.simulate))
    report(f"first_cell_{options.library}", figures, machine())


if __name__ == "__main__":
    main()
