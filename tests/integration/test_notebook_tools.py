"""Tools that execute notebooks, on the shipped kernelspec: an existing notebook runs unchanged."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from auto_kernel import GPU_KERNEL, install_kernelspecs
from left_out import thinned

if TYPE_CHECKING:
    from pathlib import Path

    from daemon_process import DaemonProcess

CELLS = (
    "import sys\nfactor = 2",
    "print('in the GPU process:', 'nls_jupyter.gpu_process.kernel' in sys.modules)",
    "def scaled(values):\n    return [factor * value for value in values]",
    "scaled([1, 2, 3])",
)
COMMANDS = {
    "jupyter execute": ["-m", "jupyter", "execute", "--inplace", "given.ipynb"],
    "nbconvert": ["-m", "nbconvert", "--execute", "--to=notebook", "--output=done", "given.ipynb"],
    "papermill": ["-m", "papermill", "--no-progress-bar", "-p", "factor", "3", "given.ipynb", "done.ipynb"],
}


def write(path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS]
    cells[0]["metadata"]["tags"] = ["parameters"]
    metadata = {
        "kernelspec": {"name": GPU_KERNEL, "display_name": "Python 3 (GPU)", "language": "python"},
        "language_info": {"name": "python"},
    }
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)


@pytest.mark.parametrize("tool", thinned(COMMANDS, 3, "tools that execute notebooks"))
def test_a_notebook_is_executed_in_the_gpu_process(daemon: DaemonProcess, tmp_path: Path, tool: str) -> None:
    write(tmp_path / "given.ipynb")
    variables = {
        **daemon.environment,
        "JUPYTER_PATH": str(install_kernelspecs(tmp_path / "jupyter")),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    command = [sys.executable, *COMMANDS[tool]]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    result = "given.ipynb" if "--inplace" in command else "done.ipynb"
    notebook: Any = nbformat.read(tmp_path / result, as_version=4)
    outputs = [dict(output) for cell in notebook.cells for output in cell.outputs]
    assert [output["output_type"] for output in outputs] == ["stream", "execute_result"], outputs
    assert outputs[0]["text"] == "in the GPU process: True\n"
    assert " given.ipynb " in daemon.nls("history").stdout
    factor = 3 if tool == "papermill" else 2
    assert outputs[1]["data"]["text/plain"] == str([factor * value for value in (1, 2, 3)])
    assert outputs[1]["execution_count"] == notebook.cells[-1]["execution_count"] == len(notebook.cells)
