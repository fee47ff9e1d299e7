"""Guardians are killed, with all that could take their place: nothing of a command or GPU process is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jupyter_client.manager import KernelManager

from daemon_process import DaemonProcess
from hidden_family import HiddenFamily, code
from leftovers import wait_until_none
from nls_jupyter.supervisor.launch import GuardedProcess
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.processes import cgroups, guardian
from nls_scheduler.processes.foreground import ForegroundCommand, NotStarted
from nls_scheduler.processes.proc import WORKLOAD_VARIABLE, look_up
from over_ipc import over_ipc
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

CELL_TIMEOUT_S = 120.0
WITHOUT_CGROUP = [("inner",), ("outer",), ("inner", "top"), ("outer", "top"), ("daemon", "outer", "top")]
IN_CGROUP = [("inner", "outer"), ("inner", "outer", "top"), ("daemon", "inner", "outer", "top")]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path, "1x1GiB", "--context-memory", "16MiB") as running:
        yield running


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """The file in which the family tells that it is there."""
    return tmp_path / "told"


def can_make_a_cgroup() -> bool:
    made = cgroups.make_for("test")
    if made is not None:
        made.rmdir()
    return made is not None


needs_cgroup = pytest.mark.skipif(not can_make_a_cgroup(), reason="this machine lets nobody make a cgroup")
LONG = pytest.mark.long("guardians that are killed in all combinations: the fewest and the most are here")
OFTEN = {("inner",), ("daemon", "inner", "outer", "top")}
CASES = [
    pytest.param(killed, id="+".join(killed), marks=[*marks, *([] if killed in OFTEN else [LONG])])
    for combinations, marks in ((WITHOUT_CGROUP, []), (IN_CGROUP, [needs_cgroup]))
    for killed in combinations
]


def kill_at_once(killed: tuple[str, ...], family: HiddenFamily, daemon: DaemonProcess) -> None:
    """None of them hears of another one's death: it is stopped by then."""
    pids = [getattr(family, who) for who in killed if who != "daemon"]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    if "daemon" in killed:
        daemon.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def nothing_is_left(family: HiddenFamily, made: list[Path], daemon: DaemonProcess) -> None:
    if daemon.process is None:
        daemon.start()
    wait_until_none("processes", family.living)
    wait_until_none("cgroups", lambda: [cgroup for cgroup in made if cgroup.exists()])


@pytest.mark.parametrize("killed", CASES)
def test_nothing_is_left_of_a_command(daemon: DaemonProcess, told: Path, killed: tuple[str, ...]) -> None:
    script = code(told, "import time; time.sleep(600)")
    running = daemon.start_nls("run", "--name", "hides", "--", sys.executable, "-c", script)
    family = HiddenFamily(told, running.pid)
    made = cgroups.made_for(daemon.wait_for("hides", phase="running")["id"], os.geteuid())
    kill_at_once(killed, family, daemon)
    assert running.wait(CELL_TIMEOUT_S) < 0
    nothing_is_left(family, made, daemon)
    wait_until(lambda: daemon.workload("hides") is None)


@needs_cgroup
@pytest.mark.parametrize("told", ["", "started {pid} 0", "started {pid} 0\nended 0"])
def test_no_cgroup_is_left_of_guardians_that_are_killed_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str
) -> None:
    killed = tmp_path / "guardian.py"
    killed.write_text(
        "import os, signal, sys\n"
        f"told = {told!r}.format(pid=os.getppid())\n"
        "report = int(sys.argv[sys.argv.index('--report-fd') + 1])\n"
        "os.write(report, f'{told}\\n'.encode() if told else b'')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setattr(guardian, "__file__", str(killed))
    workload = WorkloadId("killed-at-once")

    async def run() -> None:
        running = await ForegroundCommand.start(["true"], {**os.environ, WORKLOAD_VARIABLE: workload}, set())
        await running.wait()

    with pytest.raises(NotStarted) if not told else nullcontext():
        asyncio.run(run())
    assert cgroups.made_for(workload, os.geteuid()) == []


@pytest.mark.parametrize(
    ("killed", "reads"),
    [
        ("outer", "ended together with its guardian, the process that looks after it, which was killed"),
        ("inner", "ended together with its guardian, the process that looks after it, which was killed"),
        ("command", "was killed by SIGKILL (signal 9), as the out-of-memory killer does"),
    ],
)
def test_a_guardian_that_was_killed_is_the_reason_and_not_memory(tmp_path: Path, killed: str, reads: str) -> None:
    async def run() -> str:
        directory = tmp_path / "own"
        directory.mkdir()
        running = await GuardedProcess.start(["sleep", "600"], environment={}, directory=directory)
        stat = guardian.read_stat(running.pid)
        assert stat is not None
        inner_stat = guardian.read_stat(stat[0])
        assert inner_stat is not None
        os.kill({"outer": inner_stat[0], "inner": stat[0], "command": running.pid}[killed], signal.SIGKILL)
        return (await running.exited).describe()

    assert asyncio.run(run()) == reads


class Kernel:
    """A notebook's kernel, without any server that would end orphans."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.manager = over_ipc(KernelManager, directory, kernel_name="python3")
        self.manager.start_kernel(env=environment, stderr=subprocess.DEVNULL)
        self.client = self.manager.blocking_client()
        self.client.start_channels()

    def begin(self) -> None:
        self.client.wait_for_ready(timeout=CELL_TIMEOUT_S)
        self.run("%load_ext nls_jupyter")

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)  # type: ignore[union-attr] # it has been started

    def run(self, cell: str) -> str:
        """Standard output of a cell; its error is an error here."""
        printed: list[str] = []

        def take(message: dict[str, dict[str, str]]) -> None:
            content = message["content"]
            if "text" in content and content["name"] == "stdout":
                printed.append(content["text"])
            assert "ename" not in content, f"{content['ename']}: {content['evalue']}"

        self.client.execute_interactive(cell, output_hook=take, timeout=CELL_TIMEOUT_S)
        return "".join(printed)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=not self.manager.is_alive())
        # Files of a kernel and guardians that were killed at once are nobody's to delete.
        shutil.rmtree(Path(os.environ["JUPYTER_RUNTIME_DIR"]) / "nls", ignore_errors=True)


@pytest.fixture
def kernel(daemon: DaemonProcess, tmp_path: Path) -> Iterator[Kernel]:
    opened = Kernel(tmp_path, daemon.environment)
    try:
        opened.begin()
        yield opened
    finally:
        opened.close()


HOLDS_MEMORY = """
import os, subprocess, sys
environment = {name: value for name, value in os.environ.items() if name != "NLS_WORKLOAD"}
code = "import time; from nls_jupyter import xp; a = xp.zeros(600 << 20, dtype=xp.uint8); print(flush=True); "
code += "time.sleep(600)"
options = {"env": environment, "start_new_session": True, "stdout": subprocess.PIPE}
left = subprocess.Popen([sys.executable, "-c", code], **options)
left.stdout.readline()
print(left.pid)
"""


@pytest.mark.long("guardians that are killed under a notebook")
def test_a_notebook_comes_back_once_the_memory_of_what_outlived_its_guardians_is_free(
    daemon: DaemonProcess, kernel: Kernel
) -> None:
    left = int(kernel.run("%%gpu\n" + HOLDS_MEMORY))
    cgroup = cgroups.cgroup_of(left, cgroups.root())
    if cgroup is not None and cgroup.name.startswith("nls-"):
        (cgroup.parent / "cgroup.procs").write_text(str(left))  # as if there had never been one
    (entry,) = wait_until(lambda: [w for w in daemon.status()["workloads"] if w["memory_used_bytes"] > 600 << 20])
    (outer, inner) = (pid for pid in guardian.descendants(kernel.pid) if guardian.is_guardian(pid))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (inner, outer):  # the outer one's death would wake the inner one
            os.kill(pid, number)
    wait_until(lambda: look_up(entry["pid"]) is None)  # or the cell would begin in there
    assert kernel.run("%%gpu\nprint('again')") == "again\n"
    assert look_up(left) is None
    wait_until(lambda: "has outlived its GPU process" in daemon.log)


@pytest.mark.long("guardians that are killed under a notebook")
def test_a_cell_that_waited_for_the_next_daemon_has_its_variables(daemon: DaemonProcess, kernel: Kernel) -> None:
    pid = int(kernel.run("%%gpu\nfrom nls_jupyter import xp\nimport os\nx = xp.arange(1000)\nprint(os.getpid())"))
    wait_until(lambda: daemon.status()["workloads"][0]["saved_bytes"])
    os.kill(pid, signal.SIGKILL)
    daemon.stop()
    daemon.start()
    assert float(kernel.run("%%gpu\nprint(float(x.sum()))")) == 499500.0


@pytest.mark.parametrize("killed", CASES)
def test_nothing_is_left_of_a_gpu_process(
    daemon: DaemonProcess, kernel: Kernel, told: Path, killed: tuple[str, ...]
) -> None:
    kernel.run("%%gpu\n" + code(told, ""))
    family = HiddenFamily(told, kernel.pid)
    (entry,) = daemon.status()["workloads"]
    made = cgroups.made_for(entry["id"], os.geteuid())
    kill_at_once(killed, family, daemon)
    nothing_is_left(family, made, daemon)
    if "top" in killed:
        wait_until_none("cgroups", lambda: cgroups.made_for(entry["id"], os.geteuid()))
    else:  # the notebook's next GPU process has a cgroup by now
        assert kernel.run("%%gpu\nprint('again')") == "again\n"
