"""From a demand to free memory, for each rung of the ladder, with real notebooks' GPU processes.

The demand is a command's, and it is met when the daemon orders it to start, which it does on the driver's evidence. The
peer is what a culler does: the notebook's kernel is killed, with everything in it. Runs on simulated Gpus, and on real
ones by itself where there are any (moving needs two).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import machine, report

from kernels import Kernel, daemon
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.protocol import CommandMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

DEADLINE_S, INTERRUPT_GRACE_S, STOP_GRACE_S = 4.0, 2.0, 0.5
# A cell that runs is waited for until then; what follows is the rung's own time.
INTERRUPT_DUE_S = DEADLINE_S - STOP_GRACE_S - INTERRUPT_GRACE_S
STOP_DUE_S = DEADLINE_S - STOP_GRACE_S
PATIENCE_S = 60.0
HELD = 0.3
SETTINGS = (
    *("--set", f"reclaim_deadline_s={DEADLINE_S}", "--set", f"interrupt_grace_s={INTERRUPT_GRACE_S}"),
    *("--set", f"stop_grace_s={STOP_GRACE_S}", "--set", "cool_down_s=0"),
)
HOLD = "from nls_jupyter import xp\nx = xp.full({size}, 1, xp.uint8)"
CACHE = "from nls_jupyter import xp\nx = xp.full({size}, 1, xp.uint8)\nx = None"
LOOP = "while True: pass"
DEAF = "import time\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except KeyboardInterrupt: pass"


class Node:
    """A daemon, its Gpus' size and one notebook that holds memory."""

    def __init__(self, client: DaemonClient, book: Kernel, total_bytes: int) -> None:
        self.client, self.book, self.size = client, book, int(HELD * total_bytes)

    async def hold(self, code: str) -> None:
        """Run a GPU cell, and wait until the driver has shown what it holds and that it is saved."""
        await self.book.run(f"%%gpu\n{code.format(size=self.size)}")
        await self.until(lambda w: w["memory_used_bytes"] >= self.size and not w["executing"])
        await self.book.run("%gpu vars")  # waits for the save after the cell

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not any(holds(w) for w in (await self.client.status())["workloads"] if w["kind"] == "notebook"):
                await asyncio.sleep(0.01)

    async def demand(self, request: str, meanwhile: Callable[[], Awaitable[None]] | None = None) -> float:
        """Seconds until a command with this request may start; then it is gone again."""
        took = 0.0
        began = time.perf_counter()
        view = await self.client.submit(kind="command", name="owner", request=request)
        if meanwhile is not None:
            await meanwhile()
        async with asyncio.timeout(PATIENCE_S), self.client.supervise(view["id"]) as link:
            async for message in link:
                if isinstance(message, CommandMessage) and message.command == "start_process":
                    took = time.perf_counter() - began
                    await link.send("start_failed", command_id=message.command_id, reason="it was only measured")
        return took

    async def demand_from_running(self, code: str) -> float:
        """As `demand`, while a cell runs that is in the way."""
        running = asyncio.create_task(self.book.run(f"%%gpu\n{code}"))
        await self.until(lambda w: bool(w["executing"]))
        took = await self.demand("0.75")
        with contextlib.suppress(RuntimeError):  # interrupted, or its process was stopped: that was the purpose
            await running
        return took


@contextlib.asynccontextmanager
async def one_notebook(simulate: str | None) -> AsyncIterator[Node]:
    """A daemon, and one notebook that asks for a quarter of a Gpu and may use all of it."""
    async with daemon(simulate, *SETTINGS) as environment, Kernel(environment) as book:
        client = DaemonClient(Path(environment["NLS_SOCKET"]))
        await book.run("%gpu request 0.25 --limit 1.0")
        total = (await client.status())["gpus"][0]["memory_total_bytes"]
        yield Node(client, book, total)


async def on_one_gpu(simulate: str | None, runs: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = defaultdict(list)
    async with one_notebook(simulate) as node:
        for _ in range(runs):
            await node.hold(CACHE)
            taken["trim"].append(await node.demand("0.75"))
            await node.hold(HOLD)
            taken["suspend"].append(await node.demand("0.75"))
            await node.hold(HOLD)
            taken["interrupt"].append(await node.demand_from_running(LOOP) - INTERRUPT_DUE_S)
            await node.hold(HOLD)
            taken["evict"].append(await node.demand_from_running(DEAF) - STOP_DUE_S)
    for _ in range(runs):
        async with one_notebook(simulate) as node:
            await node.hold(HOLD)

            async def cull(book: Kernel = node.book) -> None:
                await book.manager.shutdown_kernel(now=True)

            taken["cull_the_kernel"].append(await node.demand("1.0", cull))
    return taken


async def on_two_gpus(simulate: str | None, runs: int) -> list[float]:
    """Two notebooks at home on one Gpu; the one that borrows the other is moved off it."""
    taken = []
    async with daemon(simulate, *SETTINGS) as environment, Kernel(environment) as first, Kernel(environment) as second:
        client = DaemonClient(Path(environment["NLS_SOCKET"]))
        total = (await client.status())["gpus"][0]["memory_total_bytes"]
        for book in (first, second):
            await book.run("%gpu request 0.5 --limit 1.0")
        nodes = [Node(client, book, total) for book in (first, second)]
        for _ in range(runs):
            for node in nodes:
                await node.hold(HOLD)
            await nodes[0].until(lambda w: bool(w["borrowed"]) and w["phase"] == "running")
            taken.append(await nodes[0].demand("1.0"))
    return taken


def figures(taken: dict[str, list[float]], runs: int) -> dict[str, Any]:
    rungs = {
        name: {"median_s": round(statistics.median(times), 3), "max_s": round(max(times), 3)}
        for name, times in taken.items()
    }
    cull = rungs["cull_the_kernel"]["median_s"]
    ratios = {name: round(rung["median_s"] / cull, 2) for name, rung in rungs.items() if name != "cull_the_kernel"}
    return {
        "rungs": rungs,
        "in_times_of_culling_the_kernel": ratios,
        "waited_before_s": {"interrupt": INTERRUPT_DUE_S, "evict": STOP_DUE_S},
        "held_part_of_the_gpu": HELD,
        "runs": runs,
    }


def gpus() -> int:
    """How many real ones this machine has."""
    there = Path("/proc/driver/nvidia/gpus")
    return len(list(there.iterdir())) if there.is_dir() else 0


async def measure(runs: int, *, simulated: bool) -> dict[str, Any]:
    taken = await on_one_gpu("1x2GiB" if simulated else None, runs)
    if simulated or gpus() > 1:
        taken["migrate"] = await on_two_gpus("2x2GiB" if simulated else None, runs)
    return figures(taken, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    os.environ |= {"NLS_STANDBY_MEMORY": "0", "NLS_SIMULATED_CACHE": "1"}
    report("ladder", asyncio.run(measure(runs, simulated=True)), machine())
    if gpus():
        report("ladder_gpu", asyncio.run(measure(runs, simulated=False)), machine())


if __name__ == "__main__":
    main()
