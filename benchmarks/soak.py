"""What grows while people come and go: memory, files and threads of the daemon, its journal, and kernels.

Eight simulated Gpus; notebooks and commands are started, used, killed and closed at random, twelve at a time. Two
notebooks stay all the time, one that computes in its GPU process and a plain one beside it. Growth is the slope of a
straight line through what was seen after the first tenth of the time, per hour, and per cell for the two kernels.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import machine, report, resident_kib

from kernels import Kernel, daemon
from nls_scheduler.wire.trust import peer_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_S = 3600.0
NOTEBOOKS, COMMANDS = 4, 8
LOOK_EVERY_S = 2.0
SETTLES = 0.1
"""Of the time: what grows in it is what anything takes to begin with."""
CELLS = (
    "%%gpu\nn = globals().get('n', 0) + 1",
    "%%gpu\nfrom nls_jupyter import xp\na = xp.ones(1 << 20)",
    "%%gpu\nb = [str(i) for i in range(1000)]",
    "x = 1",
    "%gpu suspend",
)
LASTING = ("%%gpu\nn = globals().get('n', 0) + 1", "n = globals().get('n', 0) + 1")


class Seen:
    """One figure over time, or over cells."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []

    def add(self, at: float, value: float) -> None:
        self._points.append((at, value))

    def slope(self) -> float:
        """By least squares, without what the beginning takes."""
        points = self._points[int(len(self._points) * SETTLES) :]
        middle, mean = (sum(column) / len(points) for column in zip(*points, strict=True))
        spread = sum((x - middle) ** 2 for x, _ in points)
        return sum((x - middle) * (y - mean) for x, y in points) / spread if spread else 0.0

    def of_it(self) -> dict[str, float]:
        values = [value for _, value in self._points]
        return {"first": values[0], "last": values[-1], "most": max(values)}


def entries(pid: int, what: str) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/{what}").iterdir())


def journal_bytes(state: Path) -> int:
    return sum(file.stat().st_size for file in state.glob("journal.db*"))


async def comes_and_goes(environment: dict[str, str], chance: random.Random, counts: dict[str, int]) -> None:
    """A notebook after another: some are closed, some die."""
    while True:
        async with Kernel(environment) as kernel:
            for _ in range(chance.randint(5, 60)):
                with contextlib.suppress(RuntimeError):  # a suspend that has nothing to suspend
                    await kernel.run(chance.choice(CELLS))
                counts["cells"] += 1
                await asyncio.sleep(chance.random())
            if chance.random() < 0.3:
                os.kill(kernel.pid, signal.SIGKILL)
            counts["notebooks"] += 1


async def commands(environment: dict[str, str], chance: random.Random, counts: dict[str, int]) -> None:
    """A command after another: some end, some are interrupted, some killed with whatever looks after them."""
    while True:
        words = ["run", "--request", chance.choice(("0.1", "0.5", "1.0")), "--", "sleep", str(chance.randint(1, 20))]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "nls_scheduler", *words,
            env=environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        ending = chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
        try:
            async with asyncio.timeout(chance.uniform(2, 30)):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                process.send_signal(ending)
                await process.wait()
        counts["commands"] += 1


async def lasts(kernel: Kernel, code: str, seen: Seen) -> None:
    for number in range(sys.maxsize):
        await kernel.run(code)
        if number % 20 == 0:
            seen.add(number, resident_kib(kernel.pid))
        await asyncio.sleep(0.1)


async def look(pid: int, state: Path, until: float, *, progress: bool) -> dict[str, Seen]:
    seen: dict[str, Seen] = {"memory_mib": Seen(), "files": Seen(), "threads": Seen(), "journal_mib": Seen()}
    began = time.monotonic()
    told = began
    while (now := time.monotonic()) < until:
        at = now - began
        seen["memory_mib"].add(at, resident_kib(pid) / 1024)
        seen["files"].add(at, entries(pid, "fd"))
        seen["threads"].add(at, entries(pid, "task"))
        seen["journal_mib"].add(at, journal_bytes(state) / 2**20)
        if progress and now - told >= 60:
            told = now
            sys.stderr.write(f"{at / 60:.0f} min: {resident_kib(pid) / 1024:.0f} MiB, {entries(pid, 'fd')} files\n")
        await asyncio.sleep(LOOK_EVERY_S)
    return seen


async def soak(minutes: float, seed: int) -> dict[str, Any]:
    chance, counts = random.Random(seed), {"cells": 0, "notebooks": 0, "commands": 0}
    async with daemon("8x2GiB", "--context-memory", "64MiB") as environment:
        path = Path(environment["NLS_SOCKET"])
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(str(path))
            pid, _ = peer_ids(connected)
        async with Kernel(environment) as gpu, Kernel(environment) as plain:
            with_gpu, without = Seen(), Seen()
            work = [comes_and_goes(environment, chance, counts) for _ in range(NOTEBOOKS)]
            work += [commands(environment, chance, counts) for _ in range(COMMANDS)]
            work += [lasts(gpu, LASTING[0], with_gpu), lasts(plain, LASTING[1], without)]
            tasks = [asyncio.ensure_future(each) for each in work]
            looking = asyncio.ensure_future(
                look(pid, path.parent / "state", time.monotonic() + minutes * 60, progress=sys.stderr.isatty())
            )
            await asyncio.wait([looking, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            raise_first(ended)
            seen = await looking
    return {
        "minutes": minutes,
        "seed": seed,
        "ended": counts,
        "daemon_per_hour": {name: round(figure.slope() * HOUR_S, 2) for name, figure in seen.items()},
        "daemon": {name: {k: round(v, 1) for k, v in figure.of_it().items()} for name, figure in seen.items()},
        "kernel_kib_per_cell": {"gpu": round(with_gpu.slope(), 2), "plain": round(without.slope(), 2)},
    }


def raise_first(ended: Sequence[object]) -> None:
    """What has failed is told; who was told to end has not."""
    for each in ended:
        if isinstance(each, Exception):
            raise each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report("soak", asyncio.run(soak(options.minutes, options.seed)), machine())


if __name__ == "__main__":
    main()
