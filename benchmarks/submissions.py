"""A thousand submissions of one user, one after another, and how long another user's `/readyz` takes meanwhile.

The workloads are never supervised: those for which there is a home hold it, the others wait in line. Prints seconds,
the daemon's own time on the processor, and milliseconds of `/readyz` while it takes them in and once it has them all.
`/readyz` of a daemon that has nothing to do, in the same run, is the peer.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from daemon_load import answers, cpu_seconds, start
from machine import machine, report

from kernels import milliseconds
from nls_scheduler.client.daemon_client import DaemonClient

_PAUSE_S = 0.02


async def readyz(
    client: DaemonClient, taken: list[float], until: asyncio.Event | None = None, times: int = 200
) -> None:
    """How long each of some requests takes: so many, or as many as fit in `until` something is over."""
    while len(taken) < times if until is None else not until.is_set():
        began = time.perf_counter()
        await client.ready()
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(_PAUSE_S)


async def measure(workloads: int, directory: Path) -> dict[str, Any]:
    daemon = start(directory)
    client, other = DaemonClient(directory / "nls.sock"), DaemonClient(directory / "nls.sock")
    taken: dict[str, list[float]] = {"before": [], "meanwhile": [], "afterwards": []}
    try:
        await answers(client)
        await readyz(other, taken["before"])
        over, cpu, began = asyncio.Event(), cpu_seconds(daemon.pid), time.perf_counter()
        asking = asyncio.ensure_future(readyz(other, taken["meanwhile"], over))
        for number in range(workloads):
            await client.submit(kind="notebook", request="0.5", name=f"notebook-{number}")
        seconds, cpu = time.perf_counter() - began, cpu_seconds(daemon.pid) - cpu
        over.set()
        await asking
        await readyz(other, taken["afterwards"])
        return {
            "workloads": workloads,
            "seconds": round(seconds, 2),
            "daemon_cpu_s": round(cpu, 2),
            "readyz": {when: milliseconds(seconds) for when, seconds in taken.items()},
        }
    finally:
        client.close()
        other.close()
        daemon.terminate()
        daemon.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nls-bench-") as directory:
        figures = asyncio.run(measure(options.workloads, Path(directory)))
    report("submissions", figures, machine())


if __name__ == "__main__":
    main()
