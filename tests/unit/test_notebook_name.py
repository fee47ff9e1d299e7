"""What a notebook is called in the status: as Jupyter Server says, or as the tool was told that executes it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nls_jupyter.notebook.magics import _executed_by


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["execute", "--inplace", "work/train.ipynb"], "work/train.ipynb"),
        (["/usr/bin/papermill", "in.ipynb", "out.ipynb"], "in.ipynb"),
        (["nbconvert", "one.ipynb", "two.ipynb"], ""),  # nobody knows which of them is this one
        (["lab"], ""),
    ],
)
def test_a_notebook_is_called_as_its_tool_was_told(words: list[str], name: str) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tool:
        assert tool.stdout is not None
        tool.stdout.readline()  # before, it has no command line yet
        assert _executed_by(tool.pid) == name
        tool.communicate(b"\n")
    assert _executed_by(tool.pid) == "", "it is gone"
