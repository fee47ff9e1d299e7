"""Kernels driven as frontends other than JupyterLab do it, message by message and signal by signal.

What VS Code does is taken from its Jupyter extension (github.com/microsoft/vscode-jupyter, MIT licence): requests from
`src/kernels/helpers.ts` (`executeSilently`), `src/kernels/kernel.ts` (set-up, the version of ipywidgets) and
`src/standalone/api/kernels/backgroundExecution.ts` (variables), signals from
`src/kernels/raw/launcher/kernelProcess.node.ts`. Only their form is imitated; no VS Code runs here.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest
from test_started_ahead import OWN_PID, processes_of, started_ahead

from auto_kernel import GPU_KERNEL, AutoKernel, Ran
from daemon_process import DaemonProcess
from hidden_family import parent_of
from leftovers import living, wait_until_none
from nls_scheduler.processes import signals
from nls_scheduler.processes.guardian import descendants, read_stat
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = pytest.mark.long("frontends other than JupyterLab in rare cases: the common ones are tried here")

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon"), "2x256MiB", "--context-memory", "16MiB") as running:
        yield running


@pytest.fixture
def notebook(daemon: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, daemon) as kernel:
        yield kernel


def signal_all(kernel: AutoKernel, number: signal.Signals) -> None:
    """All descendants of the kernel, and then itself, as VS Code interrupts it and ends it."""
    for pid in descendants(kernel.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    os.kill(kernel.pid, number)


# Requests that are no cells

WHICH_WIDGETS = """
try:
    import ipywidgets as _asked
    print("asked:" + _asked.__version__)
    del _asked
except:
    pass
"""
SETS_UP = """
__vsc_ipynb_file__ = "/of/a user/analysis.ipynb"
%config Completer.use_jedi = False
import os, matplotlib
%matplotlib inline
_before = dict(matplotlib.rcParams)
matplotlib.rcParams.update({"figure.figsize": (3, 2)})
seen_by_set_up = os.environ["CUDA_VISIBLE_DEVICES"]
"""
# What it asks goes on in a thread, whose answer comes when the request is over.
ASKS_ASIDE = """
def _asks():
    from threading import Thread
    from IPython.display import display
    there = display({{"application/x-asked": ""}}, raw=True, display_id=True)
    def answer():
        there.update({{"application/x-answer": {expression}}}, raw=True)
    Thread(target=answer, daemon=True).start()
_asks()
del _asks
"""
NAMES = "' '.join(sorted(get_ipython().run_line_magic('who_ls', '')))"


def hidden(kernel: AutoKernel, code: str) -> Ran:
    return kernel.run(code, silent=False, store_history=False, stop_on_error=False, allow_stdin=True)


def asked_aside(kernel: AutoKernel, expression: str) -> str:
    msg_id = kernel.client.execute(ASKS_ASIDE.format(expression=expression), store_history=False, stop_on_error=False)
    kernel.reply(msg_id)
    told = kernel.event(lambda m: m["msg_type"] == "update_display_data" and m["parent_header"]["msg_id"] == msg_id)
    answer: str = told["content"]["data"]["application/x-answer"]
    return answer


def test_what_is_asked_before_the_first_cell_is_answered_and_set_up_is_there_in_each_process(
    notebook: AutoKernel,
) -> None:
    assert hidden(notebook, WHICH_WIDGETS).text().startswith("asked:8.")
    ran = hidden(notebook, SETS_UP)
    assert (ran.reply["status"], ran.kinds()) == ("ok", ["execute_input"])
    assert asked_aside(notebook, NAMES) == "matplotlib os seen_by_set_up"
    failed = hidden(notebook, "undefined")
    assert (failed.reply["ename"], failed.kinds()) == ("NameError", ["execute_input", "error"])
    assert notebook.daemon.workload(notebook.name) is None
    # The kernel has no GPU that anybody gave to it.
    assert notebook.run("%%local\nseen_by_set_up, os.environ.get('CUDA_VISIBLE_DEVICES')").result == "('', None)"
    ran = notebook.run("import os\nmatplotlib.rcParams['figure.figsize'], __vsc_ipynb_file__, 'GPU-' in seen_by_set_up")
    assert ran.result == "([3.0, 2.0], '/of/a user/analysis.ipynb', True)"
    assert ran.reply["execution_count"] == 2
    assert hidden(notebook, "print(seen_by_set_up)").text().startswith("GPU-")  # the GPU process is asked from now on
    assert hidden(notebook, "6 * 7").result == "42"
    notebook.run("mine = 1")
    assert asked_aside(notebook, NAMES) == "matplotlib mine os seen_by_set_up"
    assert notebook.run("mine").reply["execution_count"] == 4


@LONG
def test_set_up_of_a_plain_kernel_is_there_in_auto_mode_that_begins_with_the_first_cell(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    with AutoKernel(tmp_path, daemon, "python3") as kernel:
        hidden(kernel, '__vsc_ipynb_file__ = "/of/a user/analysis.ipynb"')
        hidden(kernel, "get_ipython().run_cell('order = __vsc_ipynb_file__[-14:]')")
        kernel.run("%gpu auto on")
        hidden(kernel, "order += ' and later'")
        kernel.run("of_the_user = 1")
        assert kernel.run("__vsc_ipynb_file__, order").result.endswith("'analysis.ipynb and later')")
        kernel.run("%gpu restart")
        assert kernel.run("order").result == "'analysis.ipynb and later'"


@LONG
@pytest.mark.parametrize("kernel_name", [GPU_KERNEL, "python3"])
def test_the_workload_has_the_name_that_vs_code_tells(daemon: DaemonProcess, tmp_path: Path, kernel_name: str) -> None:
    with AutoKernel(tmp_path, daemon, kernel_name, JPY_SESSION_NAME="") as kernel:
        hidden(kernel, '__vsc_ipynb_file__ = "/of/a user/analysis.ipynb"')
        kernel.run("%gpu request 0.25")
        assert daemon.workload("analysis.ipynb") is not None
    wait_until(lambda: daemon.workload("analysis.ipynb") is None)


@LONG
def test_variables_are_kept_under_the_path_that_vs_code_tells(daemon: DaemonProcess, tmp_path: Path) -> None:
    def opened(name: str) -> AutoKernel:
        (tmp_path / name).mkdir()
        return AutoKernel(tmp_path / name, daemon, JPY_SESSION_NAME="", NLS_KEPT_FOLDER=str(tmp_path / "kept"))

    with opened("first") as kernel:
        hidden(kernel, WHICH_WIDGETS)
        hidden(kernel, '__vsc_ipynb_file__ = "/of/a user/analysis.ipynb"')
        kernel.run("kept = [1, 2]")
        kernel.run("%gpu save")
        stat = read_stat(kernel.pid)
        assert stat is not None
        family = {kernel.pid: stat[1], **descendants(kernel.pid)}
        signal_all(kernel, signal.SIGTERM)
        wait_until_none("processes", lambda: living(family))
    with opened("second") as kernel:
        hidden(kernel, '__vsc_ipynb_file__ = "/of/a user/analysis.ipynb"')
        kernel.run("%gpu restore")
        assert kernel.run("kept").result == "[1, 2]"


@LONG
def test_a_cell_behind_one_that_fails_runs_where_the_frontend_wants_that(notebook: AutoKernel) -> None:
    cells = [notebook.client.execute(code, stop_on_error=False) for code in ("1 / 0", "'second'")]
    cells.append(notebook.client.execute("print('unseen')", stop_on_error=False, store_history=False))
    cells.append(notebook.client.execute("'third'", stop_on_error=False))
    failed, second, unseen, third = (notebook.finish(msg_id) for msg_id in cells)
    assert (failed.reply["ename"], second.result) == ("ZeroDivisionError", "'second'")
    assert (unseen.kinds(), unseen.text()) == (["execute_input", "stream"], "unseen\n")
    assert (third.result, third.reply["execution_count"]) == ("'third'", 3)


# Signals for the kernel and all its descendants

CLEANS_UP = """
import pathlib, time
try:
    print('up', flush=True)
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    print('cleans up', flush=True)
    while not pathlib.Path('go').exists(): time.sleep(0.01)
    print('cleaned up')
"""


def test_an_interrupt_that_all_descendants_get_reaches_the_cell_once(notebook: AutoKernel) -> None:
    msg_id = notebook.client.execute(CLEANS_UP)
    shown = notebook.until(msg_id, lambda ran: "up" in ran.text())
    family = descendants(notebook.pid)
    (outer,) = (pid for pid in family if parent_of(pid) == notebook.pid)
    for pid in family:
        os.kill(pid, signal.SIGINT)
    shown += notebook.until(msg_id, lambda ran: "cleans up" in ran.text())
    os.kill(notebook.pid, signal.SIGINT)
    wait_until(lambda: not signals.pends(outer, signal.SIGINT))  # the kernel has dealt with its own
    (notebook.directory / "go").touch()
    ran = notebook.finish(msg_id, shown)
    assert (ran.reply["status"], ran.text()) == ("ok", "up\ncleans up\ncleaned up\n")
    # One that only the kernel gets is passed on, as ever.
    msg_id = notebook.client.execute("print('up', flush=True)\nwhile True: time.sleep(0.01)")
    shown = notebook.until(msg_id, lambda ran: "up" in ran.text())
    notebook.interrupt()
    assert notebook.finish(msg_id, shown).reply["ename"] == "KeyboardInterrupt"


def test_such_an_interrupt_ends_no_gpu_process_that_starts(notebook: AutoKernel) -> None:
    notebook.run("kept = 1")
    notebook.run("%gpu suspend")
    msg_id = notebook.client.execute("kept")
    wait_until(lambda: len(descendants(notebook.pid)) == 3)  # two guardians and what they guard
    starting = started_ahead(notebook)
    signal_all(notebook, signal.SIGINT)
    assert notebook.finish(msg_id).reply["evalue"].startswith("the cell was interrupted before it began")
    ran = notebook.run("kept")
    assert ran.result == "1"
    assert "could not start" not in ran.text("stderr")
    assert notebook.run(OWN_PID).result == str(starting)


def test_such_an_interrupt_leaves_the_process_that_was_started_ahead(daemon: DaemonProcess, tmp_path: Path) -> None:
    with AutoKernel(tmp_path, daemon, NLS_STANDBY_MEMORY="0.5") as kernel:
        ahead = started_ahead(kernel)
        signal_all(kernel, signal.SIGINT)
        assert kernel.run(OWN_PID).result == str(ahead)


def test_a_kernel_that_is_ended_with_all_its_descendants_leaves_nothing_and_begins_anew(notebook: AutoKernel) -> None:
    notebook.run("x = 1")
    family = descendants(notebook.pid)
    signal_all(notebook, signal.SIGTERM)
    notebook.restart()
    wait_until_none("processes", lambda: living(family))
    assert notebook.run("x").reply["ename"] == "NameError"
    assert len(processes_of(notebook)) == 1
