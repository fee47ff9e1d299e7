"""From SIGKILL to the next result: a GPU process of ours against a kernel that Jupyter Server restarts by itself.

Both on one Jupyter Server with its defaults. The kill moments are drawn uniformly (the restarter looks every 3 s). Ours
comes back with its variables; the restarted kernel has none, so with PyTorch its next result needs the import again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import machine, report

from kernels import daemon
from nls_scheduler.demo.jupyter import CellFailed, Notebook, serve

SEED = 20261121
POLL_S = 3.0
SETTLED_S = 6.0
WORK = {
    "plain": ("x = 41", "print(x + 1)"),
    "torch": ("import torch\nx = torch.full((1000,), 41)", "print(int(x[0]) + 1)"),
}


async def pid_of(notebook: Notebook, magic: str) -> int:
    return int((await notebook.run(f"{magic}import os; print(os.getpid())")).stdout)


async def autorestart(notebook: Notebook, prepare: str, ask: str, moments: random.Random) -> float:
    await notebook.run(prepare)
    pid = await pid_of(notebook, "")
    await asyncio.sleep(moments.uniform(0, POLL_S))
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while True:
        # A request to the killed kernel may be lost: whoever waits asks again.
        try:
            if (await notebook.run(f"{prepare}\n{ask}", timeout_s=1.0)).stdout.strip() == "42":
                return time.perf_counter() - began
        except (TimeoutError, CellFailed, ConnectionError):
            notebook.close()


async def ours(notebook: Notebook, prepare: str, ask: str, moments: random.Random) -> float:
    await notebook.run(f"%%gpu\n{prepare}")
    pid = await pid_of(notebook, "%%gpu\n")
    # The variables are saved and the standby, where there is one, is ready, as in a notebook that somebody looks at.
    await asyncio.sleep(SETTLED_S + moments.uniform(0, POLL_S))
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    outputs = await notebook.run(f"%%gpu\n{ask}")
    if outputs.stdout.strip() != "42":
        raise RuntimeError(f"the variables did not come back: {outputs}")
    return time.perf_counter() - began


def figures(taken: dict[str, list[float]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: {"median_s": round(statistics.median(times), 3), "max_s": round(max(times), 3)}
        for name, times in taken.items()
    }
    for work in WORK:
        ratio = statistics.median(taken[f"autorestart_{work}"]) / statistics.median(taken[f"ours_{work}"])
        found[f"{work}_sooner_by"] = round(ratio, 2)
    return found


async def measure(kills: int) -> dict[str, Any]:
    moments = random.Random(SEED)
    taken: dict[str, list[float]] = {f"{way}_{work}": [] for way in ("autorestart", "ours") for work in WORK}
    with tempfile.TemporaryDirectory() as directory:
        async with daemon() as environment, serve(Path(directory), environment) as server:
            books = {name: await server.open(f"{name}.ipynb") for name in taken}
            for _ in range(kills):
                for work, (prepare, ask) in WORK.items():
                    taken[f"autorestart_{work}"].append(
                        await autorestart(books[f"autorestart_{work}"], prepare, ask, moments)
                    )
                    taken[f"ours_{work}"].append(await ours(books[f"ours_{work}"], prepare, ask, moments))
            for book in books.values():
                await book.shut_down()
    return {**figures(taken), "kills": kills}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    report("recovery", asyncio.run(measure(parser.parse_args().kills)), machine())


if __name__ == "__main__":
    main()
