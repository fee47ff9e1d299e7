"""The example notebooks run from top to bottom, on simulated Gpus."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from jupyter_core.paths import jupyter_runtime_dir

from daemon_process import ROOT, DaemonProcess, nls_environment
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nbformat import NotebookNode

EXAMPLES = ROOT / "examples"
EXECUTE = "from nbclient.cli import main; main()"
read: Any = nbformat.read  # nbformat has no types
writes: Any = nbformat.writes
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """What `make lab` offers where there is no GPU, and nothing of this machine's own IPython."""
    with DaemonProcess(tmp_path, "2x2GiB") as running:
        for name, value in nls_environment(NLS_SOCKET=str(running.socket)).items():
            monkeypatch.setenv(name, value)
        yield running
    directory = Path(jupyter_runtime_dir()) / "nls"
    wait_until(lambda: not list(directory.glob("*")))  # what the kernel's GPU processes had there
    directory.rmdir()


def run(path: Path, directory: Path) -> Mapping[str, NotebookNode]:
    """The executed cells by their ids; `jupyter execute` in a process of its own, as people run it."""
    executed = directory / "executed.ipynb"
    command = [sys.executable, "-c", EXECUTE, "--timeout=90", f"--output={executed}", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    cells = read(executed, as_version=4).cells
    return {cell.id: cell for cell in cells if cell.cell_type == "code"}


def stream(cell: NotebookNode, name: str) -> str:
    return "".join(output.text for output in cell.outputs if output.get("name") == name)


def result(cell: NotebookNode) -> str:
    return next(str(output.data["text/plain"]) for output in cell.outputs if output.output_type == "execute_result")


def errors(cell: NotebookNode) -> list[str]:
    return [output.ename for output in cell.outputs if output.output_type == "error"]


def test_the_tour_shows_what_it_says(gpus: DaemonProcess, tmp_path: Path) -> None:
    cells = run(EXAMPLES / "tour.ipynb", tmp_path)
    assert {name for name, cell in cells.items() if errors(cell)} == {"killed"}
    assert errors(cells["killed"]) == ["GpuProcessDied"]
    assert "has no GPU" in result(cells["look"])
    assert "at home on GPU 0" in result(cells["request"])
    assert stream(cells["weights"], "stdout").startswith("10.0 on a GPU with 2048 MiB")
    assert result(cells["survived"]) == result(cells["kernel"]) != result(cells["process"])
    assert stream(cells["bursting"], "stdout") == "70% of the GPU in one array\n"
    assert stream(cells["restored"], "stdout") == "42.0 9999999.0\n"
    assert "SIGKILL" in stream(cells["restored"], "stderr")
    assert "SIGKILL" in stream(cells["log"], "stdout")
    assert "has no GPU" in result(cells["end"])
    assert gpus.status()["workloads"] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_examples_are_stored_without_outputs(path: Path) -> None:
    notebook = read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert path.read_text() == writes(notebook) + "\n", "write it with nbformat, so that diffs stay small"
