"""Cells of subshells beside those of the main shell: each waits for itself, and Ctrl-C is the main shell's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel

UNTIL_GO = "%%gpu\nprint('up', flush=True)\nwhile not pathlib.Path({go!r}).exists(): time.sleep(0.01)\n'gone on'"


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[AutoKernel]:
    with (
        DaemonProcess(tmp_path, "1x256MiB", "--context-memory", "16MiB") as daemon,
        AutoKernel(tmp_path, daemon, "python3") as kernel,
    ):
        if "kernel subshells" not in kernel.ask("kernel_info_request", {}).get("supported_features", ()):
            pytest.skip("this ipykernel has no subshells")
        kernel.run("%%gpu\nimport pathlib, time")
        yield kernel


def in_subshell(notebook: AutoKernel, code: str) -> str:
    subshell_id = notebook.ask("create_subshell_request", {}, "control")["subshell_id"]
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
    return notebook.send("execute_request", content, subshell_id=subshell_id)


@pytest.mark.long("subshells that wait")
def test_ctrl_c_reaches_the_cell_that_runs_while_a_subshells_cell_waits(notebook: AutoKernel) -> None:
    running = notebook.client.execute("%%gpu\nprint('up', flush=True)\ntime.sleep(600)")
    shown = notebook.until(running, lambda ran: "up" in ran.text())
    waiting = in_subshell(notebook, "%%gpu\n'its turn'")
    line = notebook.until(waiting, lambda ran: "display_data" in ran.kinds())
    notebook.interrupt()
    assert notebook.finish(running, shown).reply["ename"] == "KeyboardInterrupt"
    ran = notebook.finish(waiting, line)
    assert ran.reply["status"] == "ok"
    assert ran.result == "'its turn'"
    notebook.entry(executing=False)


@pytest.mark.long("subshells in rare cases")
def test_ctrl_c_ends_the_wait_of_a_cell_and_not_the_subshells_cell_that_it_waits_for(
    notebook: AutoKernel, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    running = in_subshell(notebook, UNTIL_GO.format(go=str(go)))
    shown = notebook.until(running, lambda ran: "up" in ran.text())
    waiting = notebook.client.execute("%%gpu\n1")
    line = notebook.until(waiting, lambda ran: "display_data" in ran.kinds())
    notebook.interrupt()
    assert notebook.finish(waiting, line).reply["ename"] == "KeyboardInterrupt"
    notebook.entry(executing=True)
    go.touch()
    assert notebook.finish(running, shown).result == "'gone on'"


@pytest.mark.long("subshells in rare cases")
def test_each_of_several_cells_that_waited_counts_as_one_for_the_scheduler(
    notebook: AutoKernel, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    running = notebook.client.execute(UNTIL_GO.format(go=str(go)))
    shown = notebook.until(running, lambda ran: "up" in ran.text())
    go_on = {in_subshell(notebook, UNTIL_GO.format(go=str(tmp_path / name))): tmp_path / name for name in "ab"}
    lines = {waiting: notebook.until(waiting, lambda ran: "display_data" in ran.kinds()) for waiting in go_on}
    go.touch()
    assert notebook.finish(running, shown).result == "'gone on'"
    while go_on:
        up = notebook.event(lambda message: message["msg_type"] == "stream" and "up" in message["content"]["text"])
        waiting = up["parent_header"]["msg_id"]
        notebook.entry(executing=True)
        go_on.pop(waiting).touch()
        assert notebook.finish(waiting, lines[waiting]).result == "'gone on'"
    notebook.entry(executing=False)
