"""A thousand submissions of one user, one after another, and how long another user's requests take meanwhile.

The workloads are never supervised: those for which there is a home hold it, the others wait in line. Prints seconds,
the daemon's own time on the processor, and milliseconds of `/readyz` while it takes them in and once it has them all;
then of `/livez` and `/v1/status` while their user submits ten more a second and releases as many, while it also asks
for the status fifty times at once without end, and while all of them end at once with the process that they belong to.
`/readyz` of a daemon that has nothing to do, in the same run, is the peer. The bounds of one user, which would keep all
of this away, are lifted. Started by root, the one user is another one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon_load import answers, cpu_seconds, start
from machine import machine, report

from kernels import milliseconds
from nls_scheduler.client.daemon_client import DaemonClient

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S = 0.02
_NOBODY = 65534
_A_SECOND = 10
_FLOOD = 50
_LIFTED = ("--set", "max_workloads_per_user=100000", "--set", "max_submissions_at_once=100000")


async def ask(
    client: DaemonClient, path: str, taken: list[float], until: Callable[[], bool] | None = None, times: int = 200
) -> None:
    """How long each of some requests takes: so many, or as many as fit in `until` something is over."""
    while len(taken) < times if until is None else not until():
        began = time.perf_counter()
        await client._request("GET", path)  # noqa: SLF001 - any page
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(_PAUSE_S)


async def crowd(socket: Path, workloads: int) -> None:
    """The one user: says when all are there, and goes on until its input ends."""
    client = DaemonClient(socket)

    async def one_more() -> dict[str, Any]:
        return await client.submit(kind="notebook", request="0.5", name="notebook")

    for _ in range(workloads):
        await one_more()
    sys.stdout.write("there\n")
    sys.stdout.flush()
    over = asyncio.ensure_future(_flooded(client))
    due = time.perf_counter()
    while not over.done():
        await client.release((await one_more())["id"])
        due += 1 / _A_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def _flooded(client: DaemonClient) -> None:
    """From the first line of the input to its end the status is asked for, many times at once."""

    async def ask_on() -> None:
        while True:
            await client.status()

    if await asyncio.to_thread(sys.stdin.readline):
        flood = [asyncio.ensure_future(ask_on()) for _ in range(_FLOOD)]
        await asyncio.to_thread(sys.stdin.read)
        for one in flood:
            one.cancel()


async def measure(workloads: int, directory: Path) -> dict[str, Any]:
    daemon = start(directory, *_LIFTED)
    socket = directory / "nls.sock"
    client = DaemonClient(socket)
    try:
        await answers(client)
        directory.chmod(0o755)
        socket.chmod(0o666)
        return await _beside_a_crowd(client, daemon.pid, workloads, socket)
    finally:
        daemon.terminate()
        daemon.wait()


async def _beside_a_crowd(client: DaemonClient, daemon: int, workloads: int, socket: Path) -> dict[str, Any]:
    readyz: dict[str, list[float]] = {"before": [], "meanwhile": [], "afterwards": []}
    beside: dict[str, list[float]] = {"/livez": [], "/v1/status": []}
    flooded: dict[str, list[float]] = {"/livez": [], "/v1/status": []}
    ending: dict[str, list[float]] = {"/livez": [], "/v1/status": []}
    await ask(client, "/readyz", readyz["before"])
    command = [sys.executable, __file__, "--crowd", str(socket), "--workloads", str(workloads)]
    cpu, began = cpu_seconds(daemon), time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one_user:
        there = asyncio.ensure_future(asyncio.to_thread(one_user.stdout.readline))
        await ask(client, "/readyz", readyz["meanwhile"], there.done)
        seconds, cpu = time.perf_counter() - began, cpu_seconds(daemon) - cpu
        for path, taken in beside.items():
            await ask(client, path, taken)
        one_user.stdin.write(b"flood\n")
        one_user.stdin.flush()
        for path, taken in flooded.items():
            await ask(client, path, taken)
        one_user.communicate()
    gone = asyncio.ensure_future(_none_left(client))
    await asyncio.gather(*(ask(client, path, taken, gone.done) for path, taken in ending.items()))
    await ask(client, "/readyz", readyz["afterwards"])
    return {
        "workloads": workloads,
        "seconds": round(seconds, 2),
        "daemon_cpu_s": round(cpu, 2),
        "readyz": {when: milliseconds(taken) for when, taken in readyz.items()},
        "another_user": {path: milliseconds(taken) for path, taken in beside.items()},
        "another_user_beside_a_flood": {path: milliseconds(taken) for path, taken in flooded.items()},
        "another_user_while_they_end": {path: milliseconds(taken) for path, taken in ending.items()},
    }


async def _none_left(client: DaemonClient) -> None:
    while (await client.status())["workloads"]:
        await asyncio.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=1000)
    parser.add_argument("--crowd", type=Path, help="be the one user at this socket")
    options = parser.parse_args()
    if options.crowd is not None:
        if os.geteuid() == 0:
            os.setuid(_NOBODY)
        asyncio.run(crowd(options.crowd, options.workloads))
        return
    with tempfile.TemporaryDirectory(prefix="nls-bench-") as directory:
        figures = asyncio.run(measure(options.workloads, Path(directory)))
    report("submissions", figures, machine())


if __name__ == "__main__":
    main()
