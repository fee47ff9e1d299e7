"""The daemon is killed again and again while notebooks compute and move: nothing is lost, nobody is disturbed."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from jupyter_client.manager import AsyncKernelManager

from daemon_process import DaemonProcess
from over_ipc import over_ipc
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

KILLS = (1, pytest.param(20, marks=pytest.mark.long("a daemon killed twenty times: once here")))
SEED = 20261121
CELL_TIMEOUT_S = 60.0


class Counting:
    """A kernel that counts in its GPU process, cell after cell, until it is told to stop."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        directory.mkdir()
        self._environment = environment
        self.manager = over_ipc(AsyncKernelManager, directory, kernel_name="python3")
        self.count = 0
        self._stopping = False

    async def open(self) -> None:
        await self.manager.start_kernel(env=self._environment)
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=CELL_TIMEOUT_S)
        await self.run("%load_ext nls_jupyter\ncpu_variable = 'only here'")
        await self.run("%%gpu\nfrom nls_jupyter import xp\ncounter = xp.zeros(1000)")
        self.pid = await self.run("import os; print(os.getpid())")

    async def run(self, code: str) -> str:
        """Standard output of a cell; an error in the notebook is an error here."""
        printed: list[str] = []

        def take(message):
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                printed.append(content["text"])
            if message["msg_type"] == "error":
                raise AssertionError(f"{code!r}: {content['ename']}: {content['evalue']}")

        await self.client._async_execute_interactive(code, output_hook=take, timeout=CELL_TIMEOUT_S)
        return "".join(printed)

    async def go_on(self) -> None:
        while not self._stopping:
            self.count += 1
            seen = await self.run("%%gpu\ncounter += 1\nprint(int(counter[0]), int(counter[-1]))")
            assert seen.split() == [str(self.count)] * 2

    def stop(self) -> None:
        self._stopping = True

    async def close(self) -> None:
        self.client.stop_channels()
        await self.manager.shutdown_kernel(now=True)


@pytest.fixture
def daemon(tmp_path):
    with DaemonProcess(
        tmp_path, "2x256MiB", "--context-memory", "16MiB", "--set", "residency_per_move=0", "--set", "cool_down_s=0"
    ) as running:
        yield running


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", KILLS)
def test_a_daemon_killed_again_and_again_loses_nothing(daemon, tmp_path, kills):
    asyncio.run(killed_again_and_again(daemon, tmp_path, kills))


async def killed_again_and_again(daemon: DaemonProcess, tmp_path: Path, kills: int) -> None:
    moments = random.Random(SEED)
    folders = {name: str(tmp_path / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    kernels = [Counting(tmp_path / f"k{n}", {**daemon.environment, **folders}) for n in range(2)]
    try:
        for kernel in kernels:
            await kernel.open()
        counting = [asyncio.ensure_future(kernel.go_on()) for kernel in kernels]
        await kill_at_random(daemon, moments, counting, kills)
        for kernel in kernels:
            kernel.stop()
        await asyncio.gather(*counting)
        assert all(kernel.count > kills / 4 for kernel in kernels), [kernel.count for kernel in kernels]
        await asyncio.to_thread(wait_until, lambda: [w["phase"] for w in workloads(daemon)] == ["running", "running"])
        for kernel in kernels:
            assert (
                await kernel.run("import os; print(os.getpid(), cpu_variable)") == f"{kernel.pid.strip()} only here\n"
            )
            assert await kernel.run("%%gpu\nprint(int(counter[0]))") == f"{kernel.count}\n"
        assert len({workload["pid"] for workload in workloads(daemon)}) == 2
    finally:
        for kernel in kernels:
            await kernel.close()


async def kill_at_random(
    daemon: DaemonProcess, moments: random.Random, counting: list[asyncio.Future[None]], kills: int
) -> None:
    """Every few kills somebody comes for a whole GPU or goes, so that kills meet moves at every stage."""
    third = None
    for kill in range(kills):
        if kill % 5 == 0:
            third = await asyncio.to_thread(daemon.start_nls, "run", "--name", "third", "--", "sleep", "600")
        elif kill % 5 == 3:
            third.terminate()
            await asyncio.to_thread(third.wait, 30)
        await asyncio.sleep(moments.uniform(0.0, 0.25))  # the moment is the test's input, not a wait for something
        await asyncio.to_thread(daemon.kill)
        await asyncio.to_thread(daemon.start)
        for count in counting:
            assert not count.done() or count.exception() is None, (count.exception(), daemon.log[-4000:])
    third.terminate()
    await asyncio.to_thread(third.wait, 30)


def workloads(daemon: DaemonProcess) -> list[dict]:
    return json.loads(daemon.nls("status", "--json").stdout)["workloads"]


def restarted_with(daemon: DaemonProcess, change: str) -> None:
    """Kill the daemon and a command under it, and change its journal by SQL."""
    holder = daemon.start_nls("run", "--name", "holder", "--gpus", "2", "--", "sleep", "600")
    wait_until(lambda: [w["phase"] for w in workloads(daemon)] == ["running"])
    daemon.kill()
    holder.kill()  # as a boot would, and so that nobody brings the workload back
    holder.wait()
    with closing(sqlite3.connect(daemon.directory / "state" / "journal.db")) as database:
        database.execute(change)
        database.commit()


@pytest.mark.long("deaths that nobody hears of, and what is told of them")
def test_after_a_boot_no_workload_of_before_is_left_and_the_history_stays(daemon):
    restarted_with(daemon, "UPDATE meta SET value = 'another boot' WHERE key = 'boot_id'")
    daemon.start()
    assert workloads(daemon) == []
    history = json.loads(daemon.nls("history", "--json").stdout)
    assert "started" in [entry["event"] for entry in history if entry["name"] == "holder"]


def test_a_damaged_journal_is_set_aside_and_told(daemon):
    restarted_with(daemon, "UPDATE records SET value = 'no JSON' WHERE kind = 'workload'")
    daemon.start()
    status = json.loads(daemon.nls("status", "--json").stdout)
    assert "damaged" in status["message"]
    assert list((daemon.directory / "state").glob("journal.db.damaged-*"))


def test_a_journal_of_a_newer_version_is_refused_at_the_start(daemon):
    restarted_with(daemon, "PRAGMA user_version = 99")
    refused = daemon.nls(
        "--state-dir", str(daemon.directory / "state"), "up", "--simulate", "2x256MiB", "--context-memory", "16MiB"
    )
    assert refused.returncode == 3
    assert "newer nls" in refused.stderr
