"""GPU variables that outlive their kernel, in files on the user's volume: real kernels on a simulated GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import nls_jupyter
from auto_kernel import AutoKernel
from daemon_process import DaemonProcess
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.kernel

NOTEBOOK = "/home/ada/digits.ipynb"
MAKE = """%%gpu
import hashlib, numpy as np
from nls_jupyter import xp
class Model: ...
model = Model()
model.weights = xp.asarray(np.random.default_rng(7).normal(size=300_000))
view, lines = model.weights[10:], (line for line in "ab")
"""
ENDLESS_FSYNC = """
import os, pathlib, signal
def fsync(descriptor):
    pathlib.Path({reached!r}).touch()
    signal.pause()
os.fsync = fsync
"""
LOOK = """%%gpu
model.weights[10] = 7.0
assert float(view[0]) == 7.0
hashlib.sha256(xp.asnumpy(model.weights).tobytes()).hexdigest()"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon"), "1x256MiB", "--context-memory", "16MiB") as running:
        yield running


@pytest.fixture
def opened(daemon: DaemonProcess, tmp_path: Path) -> Callable[..., AutoKernel]:
    """One more kernel of the same notebook, that keeps its variables unless it is told otherwise."""
    numbers = iter(range(9))

    def kernel(**variables: str) -> AutoKernel:
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        asked = {"NLS_KEPT_FOLDER": str(tmp_path / "kept"), "JPY_SESSION_NAME": NOTEBOOK, **variables}
        opened = AutoKernel(directory, daemon, "python3", **asked)
        opened.name = Path(NOTEBOOK).name
        return opened

    return kernel


def log_of(kernel: AutoKernel) -> str:
    return (kernel.directory / "kernel.log").read_text()


def test_after_a_shutdown_the_next_kernel_says_what_is_there_and_brings_it_back(
    opened: Callable[..., AutoKernel],
) -> None:
    with opened() as first:
        first.run(MAKE)
        assert first.run("%%gpu\nimport nls_jupyter; nls_jupyter.__file__").result == repr(nls_jupyter.__file__)
        made = first.run(LOOK).result
    assert "model" in log_of(first)
    assert "lines (a generator cannot be saved)" in log_of(first)
    with opened() as second:
        told = second.run("%%gpu\nbefore = 1").text("stderr")
        assert "kept by an earlier kernel of this notebook on" in told
        assert "%gpu restore brings them back" in told
        restored = second.run("%gpu restore").text()
        assert restored.startswith("As of cell [3] on ")
        assert "lines (a generator cannot be saved; made in cell [1] of " in restored
        assert second.run(LOOK).result == made
        assert second.run("%%gpu\nbefore").result == "1"
        second.run("%gpu suspend")
        assert second.run(LOOK).result == made


@pytest.mark.long("a kernel that ends and another one")
def test_sigterm_keeps_them_and_restore_may_come_before_any_cell(opened: Callable[..., AutoKernel]) -> None:
    with opened() as first:
        first.run(MAKE)
        made = first.run(LOOK).result
        kernel = psutil.Process(first.pid)
        kernel.send_signal(signal.SIGTERM)
        wait_until(lambda: not kernel.is_running() or kernel.status() == psutil.STATUS_ZOMBIE)
    assert "are kept as of cell [2]" in log_of(first)
    with opened() as second:
        assert "back with the next GPU cell" in second.run("%gpu restore").text()
        looked = second.run(LOOK)
        assert looked.result == made
        assert "kept by an earlier kernel" not in looked.text("stderr"), "it is here"
        assert "lines (a generator cannot be saved; made in cell [1] of " in looked.text("stderr")
        assert NOTEBOOK in second.run("%gpu restore list").text()
        assert second.run("%gpu restore drop").text() == f"What was kept of {NOTEBOOK} is removed.\n"
        assert second.run("%gpu restore").reply["ename"] == "GpuUnavailable"


@pytest.mark.long("variables that are kept, in rare cases: the common ones are here")
def test_what_is_restored_before_any_cell_is_told_with_the_first(opened: Callable[..., AutoKernel]) -> None:
    with opened() as first:
        first.run("%%gpu\nmade = 1")
    with opened() as second:
        second.run("%gpu restore")
        told = second.run("%%gpu\nmade").text("stderr")
        assert "1 variable kept" in told
        assert "%gpu restore" not in told
        assert second.run("%%gpu\nmade").text("stderr") == ""


@pytest.mark.long("variables that are kept, in rare cases: the common ones are here")
def test_a_kernel_that_is_killed_while_it_keeps_is_told_by_the_next_one_once(
    daemon: DaemonProcess, opened: Callable[..., AutoKernel], tmp_path: Path
) -> None:
    with opened() as first:
        first.run("%%gpu\nresult = 'old'")
    reached = tmp_path / "reached"
    (tmp_path / "sitecustomize.py").write_text(ENDLESS_FSYNC.format(reached=str(reached)))
    before = last(daemon)
    with opened(PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])) as second:
        second.run("%%gpu\nresult, more = 'new', 1")
        kernel = psutil.Process(second.pid)
        kernel.send_signal(signal.SIGTERM)
        wait_until(reached.exists)
        kernel.kill()
        wait_until(lambda: not kernel.is_running() or kernel.status() == psutil.STATUS_ZOMBIE)
    assert losses(daemon, before) == []
    with opened() as third:
        told = third.run("%%gpu\n1").text("stderr")
        assert "before it had kept more, result as of cell [1]: what is kept is older. c.KernelManager" in told
        assert "1 variable" in told
        wait_until(lambda: losses(daemon, before))
        wait_until(lambda: len([*(tmp_path / "kept").rglob("*.memory")]) == 1)
        third.run("%gpu restore")
        assert third.run("%%gpu\nresult").result == "'old'"
    (entry,) = losses(daemon, before)
    assert entry["missing"] == ["more", "result"]
    assert entry["reason"].startswith("an earlier kernel ended on ")
    assert not [*(tmp_path / "kept").rglob("begun.json")]


@pytest.mark.long("the rarer ends of kernels that keep variables")
def test_the_hook_before_a_pod_ends_has_a_running_cell_end_and_waits_until_all_is_written(
    opened: Callable[..., AutoKernel], tmp_path: Path
) -> None:
    with opened() as first:
        first.run(MAKE)
        cell = first.client.execute("%%gpu\nimport time\nreached = 7\nprint('up', flush=True)\ntime.sleep(60)")
        first.until(cell, lambda ran: "up" in ran.text())
        environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(first.directory / "runtime")}
        hook = [sys.executable, "-m", "nls_jupyter.supervisor.keep_now", "--grace", "20"]
        done = subprocess.run(hook, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{NOTEBOOK}: ")
        assert "are kept as of cell [2] (which the end of its kernel interrupted); " in done.stdout
        assert first.finish(cell).reply["ename"] == "GpuReclaimed"
        written = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.memory")}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.memory")} == written
    with opened() as second:
        restored = second.run("%gpu restore").text()
        assert "as of cell [2] (which the end of its kernel interrupted): back with" in restored
        assert second.run("%%gpu\nreached").result == "7"


@pytest.mark.long("the rarer ends of kernels that keep variables")
def test_a_restart_keeps_nothing(opened: Callable[..., AutoKernel], tmp_path: Path) -> None:
    with opened() as kernel:
        kernel.run(MAKE)
        kernel.restart()
        assert not (tmp_path / "kept").exists()


@pytest.mark.long("the rarer ends of kernels that keep variables")
def test_without_a_folder_the_log_names_what_ends_with_the_kernel(opened: Callable[..., AutoKernel]) -> None:
    with opened(NLS_KEPT_FOLDER="") as kernel:
        kernel.run(MAKE)
        assert "c.GpuMagics.kept_folder" in kernel.run("%gpu restore").reply["evalue"]
    (line,) = [line for line in log_of(kernel).splitlines() if "This kernel ends" in line]
    assert "model" in line
    assert "c.GpuMagics.kept_folder" in line


def losses(daemon: DaemonProcess, after: int) -> list[Any]:
    """What the node's history says is lost, from that entry on."""
    entries = daemon.request("GET", "/v1/history")[1]["entries"]
    return [entry for entry in entries if entry["sequence"] > after and entry["event"] == "lost"]


def last(daemon: DaemonProcess) -> int:
    entries = daemon.request("GET", "/v1/history")[1]["entries"]
    return max((entry["sequence"] for entry in entries), default=0)


@pytest.mark.long("the rarer ends of kernels that keep variables")
def test_what_is_kept_on_another_volume_than_when_the_kernel_began_is_told(
    opened: Callable[..., AutoKernel], tmp_path: Path
) -> None:
    mounted = tmp_path / "mounted"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as volume:
        mounted.symlink_to(volume)
        with opened(NLS_KEPT_FOLDER=str(mounted / "kept")) as kernel:
            kernel.run(MAKE)
            mounted.unlink()
            mounted.mkdir()
    told = log_of(kernel)
    assert "are kept as of cell [1]" in told
    assert f"{mounted / 'kept'} is on another volume than when this kernel began: is something not mounted?" in told


@pytest.mark.long("variables that are kept, in rare cases: the common ones are here")
def test_a_folder_that_cannot_be_used_is_named_with_what_is_lost(
    daemon: DaemonProcess, opened: Callable[..., AutoKernel], tmp_path: Path
) -> None:
    before, folder = last(daemon), tmp_path / "missing" / "kept"
    with opened(NLS_KEPT_FOLDER=str(folder)) as kernel:
        shown = kernel.run(MAKE)
        assert f"can be kept beyond its kernel: {folder}" in shown.text("stderr") + shown.text()
    assert f"are lost with the kernel: {folder}" in log_of(kernel)
    (entry,) = losses(daemon, before)
    assert entry["reason"].startswith(f"the notebook's kernel is told to end: {folder}")
    assert {"model", "view", "lines"} <= set(entry["missing"])
    assert "lost" in daemon.nls("history").stdout


@pytest.mark.long("variables that are kept, in rare cases: the common ones are here")
def test_the_history_tells_only_what_is_not_kept(daemon: DaemonProcess, opened: Callable[..., AutoKernel]) -> None:
    before = last(daemon)
    with opened() as kernel:
        kernel.run(MAKE)
    (entry,) = losses(daemon, before)
    assert (entry["missing"], entry["lost_cells"]) == (["lines"], [])
    before = last(daemon)
    with opened() as kernel:
        kernel.run("%%gpu\nmodel = 1")
    assert losses(daemon, before) == []


@pytest.mark.long("variables that are kept, in rare cases: the common ones are here")
def test_what_has_no_place_beside_the_earlier_one_is_told_before_and_when_it_goes(
    daemon: DaemonProcess, opened: Callable[..., AutoKernel]
) -> None:
    for name in ("first", "second"):
        with opened() as kernel:
            kernel.run(f"%%gpu\n{name} = 1")
        assert "(" + name + "; 17 B) is kept as of cell [1]; %gpu restore brings it back." in log_of(kernel)
        assert "is replaced" not in log_of(kernel)
    before = last(daemon)
    with opened() as third:
        told = third.run("%%gpu\nthird = 1").text("stderr")
        assert "%gpu restore brings it back. What this kernel keeps takes their place, unless" in told
    assert "which no kernel has brought back, is replaced: second." in log_of(third)
    (entry,) = losses(daemon, before)
    assert (entry["missing"], "is replaced" in entry["reason"]) == (["second"], True)
    with opened() as fourth:
        fourth.run("%gpu restore")
        fourth.run("%%gpu\nthird")
        fourth.run("%gpu restore earlier")
        assert fourth.run("%%gpu\nfirst + third").result == "2"


@pytest.mark.long("the rarer ends of kernels that keep variables")
def test_exit_keeps_them_too(opened: Callable[..., AutoKernel]) -> None:
    with opened() as kernel:
        kernel.run(MAKE)
        kernel.client.execute("exit()")
        kernel_process = psutil.Process(kernel.pid)
        wait_until(lambda: not kernel_process.is_running() or kernel_process.status() == psutil.STATUS_ZOMBIE)
    assert "are kept as of cell [1]" in log_of(kernel)


@pytest.mark.long("a runtime folder with too long a name for a socket")
def test_who_cannot_be_asked_by_the_hook_says_so(opened: Callable[..., AutoKernel], tmp_path: Path) -> None:
    with opened(JUPYTER_RUNTIME_DIR=str(tmp_path / ("r" * 90))) as kernel:
        assert kernel.run("%%gpu\n1").result == "1"
        assert "A pod's hook cannot ask this kernel to keep its variables" in kernel.run("%gpu log").text()
