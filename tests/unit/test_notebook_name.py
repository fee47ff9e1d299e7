"""What a notebook is called in the status: as Jupyter Server says, or as the tool was told that executes it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from nls_jupyter.notebook.magics import _executed_by, _notebook_name
from nls_jupyter.saved_state.hidden_names import HiddenNames
from nls_jupyter.saved_state.manifest import user_names


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


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("work/alice.ipynb", "alice.ipynb"),
        ("console-1-8f86f584-e45e-425f-a315-a9ab55b376ed", "console-1"),
        ("console-1-8f86f584.ipynb", "console-1-8f86f584.ipynb"),
    ],
)
def test_a_console_is_called_as_its_tab_is(path: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", path)
    assert _notebook_name() == name


def test_jupyter_server_is_believed_before_vs_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert _notebook_name("/of/a user/analysis.ipynb") == "analysis.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", "work/alice.ipynb")
    assert _notebook_name("/of/a user/analysis.ipynb") == "alice.ipynb"


def test_the_path_that_ipykernel_leaves_among_the_names_is_no_variable_of_the_users() -> None:
    shell = SimpleNamespace(user_ns={}, user_ns_hidden={})
    hidden = HiddenNames(shell)
    shell.user_ns["__session__"] = "work/alice.ipynb"
    assert user_names(shell.user_ns, shell.user_ns_hidden) == {}
    shell.user_ns_hidden |= shell.user_ns  # as IPython does before the first cell
    assert list(hidden.place().entries()) == []
