"""Sets the stage for the demo: Gpus, a daemon and a Jupyter Server of its own, all of them gone afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.demo import jupyter
from nls_scheduler.demo.cast import DemoFailed
from nls_scheduler.demo.ending import with_us
from nls_scheduler.demo.jupyter import CellFailed
from nls_scheduler.demo.one_gpu import NOTEBOOKS_QUEUE, QUEUES, OneGpu
from nls_scheduler.demo.two_gpus import TwoGpus
from nls_scheduler.drivers.nvml import NvmlDriver
from nls_scheduler.processes.signals import heeded
from nls_scheduler.units.counts import counted
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from nls_scheduler.demo.cast import Cast
    from nls_scheduler.demo.screen import Screen

SIMULATIONS = {1: "1x1GiB", 2: "2x512MiB"}
CONTEXT_MEMORY = "32MiB"
# The holder of burst keeps it for a while before it yields; a story should not wait that long.
SHORT_TURNS = ("--set", "residency_per_move=1")
_START_TIMEOUT_S = 30.0
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def idle_gpus() -> tuple[list[str], str]:
    """UUIDs of the real Gpus that nobody uses, and one sentence about them."""
    driver = NvmlDriver()
    try:
        found = driver.discover()
        if not found:
            return [], driver.trouble() or "This machine has no GPU."
        samples = driver.sample()
        # A list that the driver hides (None) is no empty list.
        idle = [gpu.uuid for gpu in found if gpu.uuid in samples and samples[gpu.uuid].processes == {}]
        are = "is" if len(idle) == 1 else "are"
        return list(idle), f"Of this machine's {counted(len(found), 'GPU')} {len(idle)} {are} idle."
    finally:
        driver.close()


async def perform(screen: Screen, keep: Path | None, count: int | None) -> int:
    """Play the story. Returns the exit code: 0 when everything that it claims was seen, 128 + N after signal N.

    `count`: for so many GPUs, 1 or 2; `None`: for what is idle.

    Ctrl-C and the like end it in an orderly way, so that it leaves nothing then either.
    """
    task = asyncio.current_task()
    received: list[int] = []

    def stop(number: int) -> None:
        if task is not None and not received:
            screen.note("Stopping: everything that the demo started is ended first.")
            task.cancel()
        received.append(number)

    loop = asyncio.get_running_loop()
    for number in heeded(_ENDING_SIGNALS):
        loop.add_signal_handler(number, stop, number)
    unwanted = logging.getLogger("tornado.application")
    unwanted.addFilter(keeps := lambda _: not received)  # of requests that the end cancels
    try:
        code = await _perform(screen, keep, count)
    except asyncio.CancelledError:
        if not received:
            raise
        return 128 + received[0]
    finally:
        unwanted.removeFilter(keeps)
    if code == 0:
        screen.act("The end. Nothing is left running." + (f" The notebooks are in {keep}." if keep else ""))
    return code


async def _perform(screen: Screen, keep: Path | None, count: int | None) -> int:
    idle, about = idle_gpus()
    count, gpus, which = which_gpus(count, idle)
    screen.note(f"{about} {which}")
    directory = Path(tempfile.mkdtemp(prefix="nls-demo-", dir="/tmp"))
    queue = {"NLS_QUEUE": NOTEBOOKS_QUEUE} if count == 1 else {}
    rules = ["--set", f"queues={QUEUES}"] if count == 1 else []
    try:
        async with _daemon(directory, [*gpus, *rules]) as client, _followed(client, screen):
            environment = {"NLS_SOCKET": str(client.socket), **queue}
            async with jupyter.serve(directory, environment, with_us()) as server:
                story: Cast = (OneGpu if count == 1 else TwoGpus)(client, server, screen)
                return await _play(story, screen, directory, keep)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def which_gpus(count: int | None, idle: Sequence[str]) -> tuple[int, list[str], str]:
    """For how many GPUs the story is, the daemon's arguments for them, and the sentence that says which they are.

    Args:
        count: as asked for; None: what is idle decides, and where nothing is, two are simulated.
        idle: UUIDs of real GPUs that nobody uses.
    """
    count = count or (1 if len(idle) == 1 else 2)
    number = {1: "one", 2: "two"}[count]
    if len(idle) < count:
        kind = "GPU" if count == 1 else "GPUs"
        told = f"The story needs {number} idle: it plays on {number} SIMULATED {kind} ({SIMULATIONS[count]})."
        return count, ["--simulate", SIMULATIONS[count], "--context-memory", CONTEXT_MEMORY], told
    told = f"The story plays on {number} of them; the others are left alone."
    return count, ["--gpus", ",".join(idle[:count])], told


async def _play(story: Cast, screen: Screen, directory: Path, keep: Path | None) -> int:
    try:
        await story.play()
    except (DemoFailed, CellFailed, TimeoutError, ConnectionError) as error:
        screen.act(f"The demo failed: {error}")
        for log in (directory / "daemon.log", directory / "jupyter.log"):
            screen.note(f"{log.name}: {log.read_text(errors='replace')[-3000:]}")
        return 1
    finally:
        for notebook in story.notebooks:
            with suppress(OSError):
                await notebook.save()
            notebook.close()
        if keep is not None:
            _copy_notebooks(directory, keep)
    return 0


def _copy_notebooks(directory: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for document in (directory / "notebooks").glob("*.ipynb"):
        shutil.copy(document, keep)


@asynccontextmanager
async def _daemon(directory: Path, arguments: Sequence[str]) -> AsyncIterator[DaemonClient]:
    socket, log_path = directory / "nls.sock", directory / "daemon.log"
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *with_us(), sys.executable, "-P", "-m", "nls_scheduler", "--socket", str(socket),
            "up", *arguments, *SHORT_TURNS,
            env={k: v for k, v in os.environ.items() if not k.startswith("NLS_")},
            stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    client = DaemonClient(socket)
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            await _ready(process, client, log_path)
        yield client
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _ready(process: asyncio.subprocess.Process, client: DaemonClient, log: Path) -> None:
    while True:
        if process.returncode is not None:
            raise DaemonUnreachable(f"The demo's daemon did not start; its log {log} says why.")
        try:
            await client.ready()
        except (DaemonUnreachable, Problem):
            await asyncio.sleep(0.05)
        else:
            return


@asynccontextmanager
async def _followed(client: DaemonClient, screen: Screen) -> AsyncIterator[None]:
    """Print the daemon's events while the story plays."""

    async def follow() -> None:
        with suppress(DaemonUnreachable):
            async for entry in client.events():
                screen.event(entry)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
