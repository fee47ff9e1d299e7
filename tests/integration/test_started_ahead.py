"""The first GPU process of a kernel in auto mode, which is started with that kernel and before its first cell."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_killed_guardians import can_make_a_cgroup

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess
from leftovers import living, wait_until_none
from nls_scheduler.processes import cgroups
from nls_scheduler.processes.guardian import descendants, is_guardian
from nls_scheduler.processes.proc import variable_of, workload_of
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = pytest.mark.long("what may be wrong with a process that was started ahead: that it is used is tried here")

pytestmark = pytest.mark.kernel

OWN_PID = "import os; os.getpid()"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon"), "2x256MiB", "--context-memory", "16MiB") as running:
        yield running


@pytest.fixture
def notebook(daemon: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, daemon, NLS_STANDBY_MEMORY="0.5") as kernel:
        yield kernel


def processes_of(kernel: AutoKernel) -> list[int]:
    """The GPU processes below a kernel, whatever becomes of them."""
    return [pid for pid in descendants(kernel.pid) if not is_guardian(pid) and is_gpu_process(pid)]


def is_gpu_process(pid: int) -> bool:
    try:
        return b"nls_jupyter.gpu_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has just ended


def started_ahead(kernel: AutoKernel) -> int:
    """Its pid."""
    (pid,) = wait_until(lambda: processes_of(kernel))
    return pid


def test_the_first_cell_runs_in_the_process_that_began_with_the_kernel(notebook: AutoKernel) -> None:
    pid = started_ahead(notebook)
    assert notebook.daemon.workload(notebook.name) is None
    assert notebook.run(OWN_PID).result == str(pid)
    entry = notebook.entry(phase="running")
    assert entry["pid"] == pid
    shown = "print(os.environ['CUDA_VISIBLE_DEVICES'], os.getcwd(), 'NLS_AHEAD' in os.environ)"
    assert notebook.run(shown).text().split() == [entry["current"][0], str(notebook.directory), "False"]
    assert notebook.run("!printenv CUDA_VISIBLE_DEVICES NLS_WORKLOAD").text().split() == [
        entry["current"][0],
        entry["id"],
    ]
    assert processes_of(notebook) == [pid]


@pytest.mark.long("processes that begin with their kernel, in rare cases")
def test_whose_it_is_can_be_seen_as_of_any_other(notebook: AutoKernel) -> None:
    pid = started_ahead(notebook)
    assert workload_of(pid) is None
    notebook.run("pass")
    entry = notebook.entry(phase="running")
    assert (workload_of(pid), variable_of(pid, "CUDA_VISIBLE_DEVICES")) == (entry["id"], entry["current"][0])
    made = cgroups.made_for(entry["id"], os.geteuid())
    assert len(made) == can_make_a_cgroup()
    assert all(pid in cgroups.members(cgroup) for cgroup in made)


def test_a_first_cell_that_asks_for_a_size_gets_it(notebook: AutoKernel) -> None:
    pid = started_ahead(notebook)
    notebook.run("%gpu request 0.25 --limit 0.25")
    assert notebook.run(OWN_PID).result == str(pid)
    entry = notebook.entry(phase="running")
    assert (entry["request_bytes"], entry["limit_bytes"]) == (64 << 20, 64 << 20)


def test_what_the_user_has_run_at_the_start_sees_the_gpu_that_it_gets(daemon: DaemonProcess, tmp_path: Path) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "gpu.py").write_text("import os\nseen = os.environ.get('CUDA_VISIBLE_DEVICES')\n")
    with AutoKernel(tmp_path, daemon, NLS_STANDBY_MEMORY="0.5") as kernel:
        pid = started_ahead(kernel)
        assert kernel.run("import os; os.getpid(), seen").result == str((pid, kernel.entry()["current"][0]))


def test_other_kernels_have_none(daemon: DaemonProcess, tmp_path: Path) -> None:
    with AutoKernel(tmp_path, daemon, "python3", NLS_STANDBY_MEMORY="0.5") as kernel:
        kernel.run("%gpu log")
        assert processes_of(kernel) == []


@LONG
def test_without_memory_for_what_stands_by_there_is_none(daemon: DaemonProcess, tmp_path: Path) -> None:
    with AutoKernel(tmp_path, daemon, NLS_STANDBY_MEMORY="0") as kernel:
        kernel.run("%gpu log")
        assert processes_of(kernel) == []
        assert kernel.run("1").result == "1"


@LONG
def test_one_that_nobody_needs_ends(daemon: DaemonProcess, tmp_path: Path) -> None:
    arguments = ["--GpuMagics.standby_idle=0.5"]
    with AutoKernel(tmp_path, daemon, arguments=arguments, NLS_STANDBY_MEMORY="0.5") as kernel:
        wait_until_none("processes", lambda: processes_of(kernel))
        assert kernel.run("1").result == "1"


@pytest.mark.long("processes that begin with their kernel, in rare cases")
@pytest.mark.parametrize("wrong", ["it is killed", pytest.param("the kernel's environment is another", marks=LONG)])
def test_whatever_is_wrong_with_it_the_first_cell_has_another(notebook: AutoKernel, wrong: str) -> None:
    pid = started_ahead(notebook)
    if wrong == "it is killed":
        os.kill(pid, signal.SIGKILL)
        wait_until_none("processes", lambda: processes_of(notebook))
    else:
        notebook.run("%%local\nimport os; os.environ['OMP_NUM_THREADS'] = '1'")
    assert notebook.run("import os; os.getpid(), os.environ.get('OMP_NUM_THREADS')").result == str(
        (notebook.entry(phase="running")["pid"], None if wrong == "it is killed" else "1")
    )
    assert processes_of(notebook) == [notebook.entry()["pid"]] != [pid]


@pytest.mark.long("processes that begin with their kernel, in rare cases")
@pytest.mark.parametrize("end", ["killed", "shut down", "restarted"])
def test_nothing_is_left_of_it_when_the_kernel_ends_before_its_first_cell(notebook: AutoKernel, end: str) -> None:
    started_ahead(notebook)
    family = descendants(notebook.pid)
    if end == "killed":
        os.kill(notebook.pid, signal.SIGKILL)
    elif end == "shut down":
        notebook.client.shutdown()
    else:
        notebook.restart()
    wait_until_none("processes", lambda: living(family))
    if end == "restarted":
        pid = started_ahead(notebook)
        assert notebook.run(OWN_PID).result == str(pid)
