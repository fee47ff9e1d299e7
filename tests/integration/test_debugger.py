"""JupyterLab's debugger in real kernels, message by message as a frontend sends them, on simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("debugpy")

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("node"), "1x256MiB", "--context-memory", "16MiB") as daemon:
        yield daemon


@pytest.fixture
def notebook(node: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, node) as kernel:
        yield kernel


@pytest.fixture
def plain(node: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    """A notebook whose cells run in its kernel, but for those with %%gpu."""
    with AutoKernel(tmp_path, node, "python3") as kernel:
        yield kernel


def attach(kernel: AutoKernel) -> None:
    assert kernel.debug("initialize", clientID="test", adapterID="", pathFormat="path")["success"]
    kernel.debug("attach")
    kernel.debug_event("initialized")
    kernel.debug("configurationDone")


def set_breakpoint(kernel: AutoKernel, code: str, line: int) -> str:
    """Returns the path of the cell's code."""
    path: str = kernel.debug("dumpCell", code=code)["body"]["sourcePath"]
    kernel.debug("setBreakpoints", source={"path": path}, breakpoints=[{"line": line}], sourceModified=False)
    return path


def test_the_debugger_stops_in_a_cell_of_the_gpu_process_and_all_is_saved_as_before(notebook: AutoKernel) -> None:
    notebook.run("%config GpuMagics.save_within = 0")  # a copy saves what takes longer than a moment
    notebook.run("import os\naa, large = 1, bytearray(os.urandom(2**26))")
    attach(notebook)
    for cell in "123":
        notebook.run(f"aa += 1\nlarge[::4096] = os.urandom(2**14)  # {cell}")
    code = "y = 1\nz = y + 1\nz"
    set_breakpoint(notebook, code, 2)
    msg_id = notebook.client.execute(code)
    thread = notebook.debug_event("stopped")["threadId"]
    assert notebook.debug("stackTrace", threadId=thread)["body"]["stackFrames"][0]["line"] == 2
    notebook.debug("next", threadId=thread)
    assert notebook.debug_event("stopped")["threadId"] == thread
    notebook.debug("continue", threadId=thread)
    assert notebook.finish(msg_id).result == "2"
    notebook.debug("disconnect", restart=False, terminateDebuggee=False)
    assert notebook.run("aa + 1").result == "5"
    wait_until(lambda: "saved as of cell [7]" in notebook.run("%gpu").result)
    notebook.run("%gpu suspend")
    notebook.entry(phase="suspended")
    assert notebook.run("aa + z").result == "6"


@pytest.mark.long("the debugger in the notebook's kernel")
def test_a_gpu_process_starts_and_leaves_while_the_notebooks_kernel_is_debugged(plain: AutoKernel) -> None:
    attach(plain)
    cell = "%%gpu\na = 1\na"
    set_breakpoint(plain, cell, 2)
    ran = plain.run(cell)
    assert ran.result == "1"
    assert ran.text("stderr").startswith(
        "GPU: the breakpoints in this cell are not reached: it runs in the GPU process"
    )
    assert not plain.run("%%gpu\na").text("stderr")
    code = "y = 1\nz = y + 1\nz"
    set_breakpoint(plain, code, 2)
    msg_id = plain.client.execute(code)
    thread = plain.debug_event("stopped")["threadId"]
    plain.daemon.nls("suspend", plain.name)
    plain.entry(phase="suspended")
    plain.debug("continue", threadId=thread)
    assert plain.finish(msg_id).result == "2"
    plain.debug("disconnect", restart=False, terminateDebuggee=False)
    assert plain.run("%%gpu\na + 1").result == "2"
