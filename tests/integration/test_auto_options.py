"""`%%gpu` with options in a notebook in auto mode: they do what they do in every notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("node"), "1x256MiB", "--context-memory", "16MiB") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def notebook(daemon: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path_factory.mktemp("auto"), daemon) as kernel:
        yield kernel


def test_variables_are_copied_from_and_to_the_names_of_local_cells(notebook: AutoKernel) -> None:
    notebook.run("%%local\nhere = 5")
    ran = notebook.run("%%gpu -i here -o there\nthere = here + 1; there")
    assert ran.result == "6"
    assert notebook.run("_ + here").result == "11"
    assert notebook.run("%%local\nthere").result == "6"


def test_its_number_is_the_notebooks(notebook: AutoKernel) -> None:
    count = notebook.run("%%gpu --retry\n'numbered'").reply["execution_count"]
    assert notebook.run(f"Out[{count}], In[{count}]").result == """('numbered', "'numbered'")"""
    assert notebook.run("1").reply["execution_count"] == count + 2


@pytest.mark.parametrize(
    ("cell", "ename", "sentence"),
    [
        ("%%gpu --unknown\nraise SystemExit", "GpuUsageError", "Unrecognized arguments: --unknown."),
        (
            "%%gpu -i nowhere\nraise SystemExit",
            "GpuTransferFailed",
            "there is no variable nowhere in the notebook's kernel",
        ),
        ("%%gpu\n%%gpu -i here\nhere", "GpuUsageError", "%%gpu with options must be the first line of its cell"),
        ("%%local -o there\nraise SystemExit", "GpuUsageError", "%%local takes nothing more, and got '-o there'."),
        ("%%local raise SystemExit", "UsageError", "%%local is a cell magic, but the cell body is empty"),
    ],
)
def test_options_that_mean_nothing_are_refused(notebook: AutoKernel, cell: str, ename: str, sentence: str) -> None:
    reply = notebook.run(cell).reply
    assert reply["ename"] == ename
    assert sentence in reply["evalue"]


def test_a_cell_that_is_not_to_wait_fails_at_once(daemon: DaemonProcess, notebook: AutoKernel, tmp_path: Path) -> None:
    notebook.run("%gpu request 1.0\n")
    notebook.run("1")
    with AutoKernel(tmp_path, daemon) as other:
        for options in ("--no-wait", "--timeout 0"):
            assert other.run(f"%%gpu {options}\n1").reply["ename"] == "GpuUnavailable"


def test_the_question_about_it_is_answered(notebook: AutoKernel) -> None:
    assert "--no-wait" in notebook.run("%%gpu?").reply["payload"][0]["data"]["text/plain"]
