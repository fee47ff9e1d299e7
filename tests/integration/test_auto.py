"""Auto mode in a real kernel of the shipped kernelspec, on simulated GPUs."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import IPython
import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = pytest.mark.long("auto mode in rare cases: the common ones are tried here")

pytestmark = pytest.mark.kernel

IPYTHON_8_10 = IPython.version_info[:2] == (8, 10)
GONE = "this notebook's GPU process is not there now"


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("two"), "2x256MiB", "--context-memory", "16MiB") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def steady(two_gpus: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AutoKernel]:
    """For tests that leave the GPU process running and auto mode on. None of them waits for its start."""
    with AutoKernel(tmp_path_factory.mktemp("steady"), two_gpus) as kernel:
        kernel.run("None")
        yield kernel


@pytest.fixture
def notebook(two_gpus: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, two_gpus) as kernel:
        yield kernel


FOLLOW_PAUSES = """
kernel = get_ipython().kernel
pauses = []
kernel.observe(lambda change: pauses.append(change.new), "_execute_sleep")
"""


def until_there(path: Path) -> str:
    """Code that waits for a file."""
    return f"import pathlib, time\nwhile not pathlib.Path({str(path)!r}).exists(): time.sleep(0.01)"


def gpu_pid(kernel: AutoKernel) -> int:
    pid: int = kernel.entry(phase="running")["pid"]
    return pid


# What runs where


def test_nothing_starts_before_the_first_cell_that_needs_it(notebook: AutoKernel) -> None:
    assert notebook.run("%gpu auto").text() == "Auto mode is on.\n"
    assert "Nothing has happened" in notebook.run("# the log\n\n%gpu log\n").text()
    assert notebook.run("%%local\nimport os; os.getpid()").result == str(notebook.pid)
    assert "%gpu release" in notebook.run("%gpu?").reply["payload"][0]["data"]["text/plain"]
    for code in ("", "   \n", "# only a comment"):
        assert notebook.run(code).reply["status"] == "ok"
    assert notebook.client.complete("pri", reply=True, timeout=60)["content"]["matches"] == ["print"]
    for options in ({"silent": True}, {"store_history": False}):
        ran = notebook.run("1", **options)
        assert (ran.reply["status"], ran.reply["payload"], ran.reply["user_expressions"]) == ("ok", [], {})
        wants_values = notebook.run("1", user_expressions={"two": "1 + 1"}, **options)
        assert wants_values.reply["user_expressions"]["two"]["data"]["text/plain"] == "2"
    assert notebook.daemon.workload(notebook.name) is None
    assert notebook.run("import os; os.getpid()").result == str(gpu_pid(notebook))


def test_all_names_live_in_the_gpu_process_and_the_kernels_are_reached_with_local(steady: AutoKernel) -> None:
    steady.run("x = 'in the GPU process'")
    steady.run("%%local\nx = 'in the kernel'")
    assert steady.run("x").result == "'in the GPU process'"
    assert steady.run("\n%%local\nx").result == "'in the kernel'"
    assert steady.run("%%gpu\nx").result == "'in the GPU process'"
    if not IPYTHON_8_10:  # whose %%time says of an error that there was none
        assert steady.run("%%time\n%%local\nx").reply["evalue"].startswith("%%local must be the first line")
    assert steady.run("%%local\nfrom asyncio import sleep\nawait sleep(0)\nx").result == "'in the kernel'"


@pytest.mark.parametrize(
    "asked",
    [
        "__import__('sys').argv[0]",
        "__import__('pathlib').Path(get_ipython().config['IPKernelApp']['connection_file']).name",
        "'JPY_PARENT_PID' in __import__('os').environ",
    ],
)
def test_code_that_asks_which_kernel_it_is_in_finds_the_notebooks(steady: AutoKernel, asked: str) -> None:
    assert steady.run(asked).result == steady.run(f"%%local\n{asked}").result


def test_switching_says_what_stays_where_and_leaves_the_kernel_as_it_was(
    two_gpus: DaemonProcess, tmp_path: Path
) -> None:
    untouched = "{'do_execute', 'do_complete', 'do_inspect', 'do_debug_request'} & set(vars(get_ipython().kernel))"
    with AutoKernel(tmp_path, two_gpus, "python3") as kernel:
        assert kernel.run("cpu = 1\n%gpu auto on\ncpu").result == "1"
        on = kernel.run("%gpu auto on").text()
        assert on == "Auto mode is on.\n"
        assert kernel.run("cpu").reply["ename"] == "NameError"
        kernel.run("a, b = 1, 2")
        off = kernel.run("%gpu auto off").text()
        assert off == (
            "From the next cell on, cells run in the notebook's kernel. "
            "2 names stay in the GPU process; %%gpu reaches them.\n"
        )
        assert kernel.run(f"cpu, len({untouched})").result == "(1, 2)"  # completion and help of %%gpu cells stay
        assert kernel.run("%%gpu\na + b").result == "3"
        assert "1 name stays in the kernel; %%local reaches it." in kernel.run("%gpu auto on").text()
        assert kernel.run("a + b").result == "3"
        assert kernel.run("%gpu auto maybe").reply["evalue"] == "%gpu auto takes on or off, and got 'maybe'."


@LONG
def test_the_configuration_switches_it_on_and_off_in_any_kernel(two_gpus: DaemonProcess, tmp_path: Path) -> None:
    with AutoKernel(tmp_path, two_gpus, "python3", arguments=["--GpuMagics.auto=True"]) as kernel:
        where = "import sys; 'nls_jupyter.gpu_process.kernel' in sys.modules"
        assert kernel.run(where).result == "True"
        kernel.run("%%local\n%config GpuMagics.auto = False")
        assert kernel.run(where).result == "False"


@LONG
def test_a_kernel_that_a_cell_starts_is_not_in_auto_mode(steady: AutoKernel) -> None:
    ran = steady.run(
        "from jupyter_client.manager import start_new_kernel\n"
        "manager, client = start_new_kernel(extra_arguments=['--ext=nls_jupyter'])\n"
        "client.execute_interactive('%gpu auto', timeout=30, allow_stdin=False)\n"
        "client.stop_channels(); manager.shutdown_kernel()"
    )
    assert ran.text() == "Auto mode is off.\n"


# Replies


def test_numbers_are_the_notebooks_everywhere(notebook: AutoKernel) -> None:
    notebook.run("%gpu log")
    assert notebook.run("'two'").last("execute_result")["execution_count"] == 2
    failed = notebook.run("1/0")
    assert failed.reply["execution_count"] == 3
    assert "In[3]" in "".join(failed.last("error")["traceback"]).replace("\x1b", "")
    notebook.run("%%local\n'four'")
    assert notebook.run("In[2], Out[2], _, sorted(Out)").result == "(\"'two'\", 'two', 'two', [2])"
    # IPython 8.10 shows what is not kept with the number of the next cell.
    assert notebook.run("6", store_history=False).last("execute_result")["execution_count"] == 5 + IPYTHON_8_10
    assert notebook.run("_i, len(In)").last("execute_result")["execution_count"] == 6


def test_numbers_go_on_after_a_move_and_history_is_the_kernels(notebook: AutoKernel) -> None:
    notebook.run("first = 1")
    notebook.run("%gpu suspend")
    moved = notebook.run("first")
    assert moved.last("execute_result")["execution_count"] == 3
    assert notebook.run("%history -n").text().splitlines() == [
        "   1: first = 1",
        "   2: %gpu suspend",
        "   3: first",
        "   4: %history -n",
    ]
    lines = notebook.run("%history -n -l 2", store_history=False).text().splitlines()
    assert lines == ["   1: first = 1", "   3: first"]  # of what ran in the GPU process
    tail = notebook.ask("history_request", {"hist_access_type": "tail", "raw": True, "output": True, "n": 2})
    assert [(line, *both) for _, line, both in tail["history"]] == [(3, "first", None), (4, "%history -n", None)]
    spans = {"hist_access_type": "range", "raw": True, "output": True, "session": 0, "start": 3, "stop": 4}
    assert [entry[2][0] for entry in notebook.ask("history_request", spans)["history"]] == ["first"]


@LONG
def test_two_gpu_cells_in_one_cell_neither_lose_the_count_nor_complain(two_gpus: DaemonProcess, tmp_path: Path) -> None:
    with AutoKernel(tmp_path, two_gpus, "python3") as kernel:
        kernel.run("magic = get_ipython().run_cell_magic")
        twice = kernel.run("magic('gpu', '', 'a = 1'); magic('gpu', '', '%history\\nIn')")
        assert twice.text("stderr") == ""
        assert twice.text() == "magic = get_ipython().run_cell_magic\n%history\nIn\n"
        assert kernel.run("%%gpu\n1/0").reply["execution_count"] == 3
        assert "In[3]" in "".join(kernel.run("%%gpu\n%tb").last("error")["traceback"]).replace("\x1b", "")


def test_an_error_is_shown_once_with_its_own_traceback_and_drops_what_is_queued(
    steady: AutoKernel, tmp_path: Path
) -> None:
    queued = tmp_path / "queued"
    first = steady.client.execute(f"{until_there(queued)}\nprint('before')\n{{}}['missing']")
    second = steady.client.execute("print('not run')")
    steady.ask("kernel_info_request", {}, "control")  # what was sent before has come by then
    queued.touch()
    failed = steady.finish(first)
    assert failed.kinds() == ["execute_input", "stream", "error"]
    assert (failed.reply["ename"], failed.reply["evalue"]) == ("KeyError", "'missing'")
    assert failed.reply["traceback"] == failed.last("error")["traceback"]
    assert "nls_jupyter" not in "".join(failed.reply["traceback"])
    assert steady.finish(second).reply["status"] == "aborted"
    first = steady.client.execute("1/0", stop_on_error=False)
    second = steady.client.execute("'run'")
    assert steady.finish(first).reply["status"] == "error"
    assert steady.finish(second).result == "'run'"


def test_a_reply_waits_for_outputs_on_their_way_only_where_there_are_any(steady: AutoKernel) -> None:
    steady.run(f"%%local\n{FOLLOW_PAUSES}")
    without = 0
    for code, shows in {
        "x = 1": 0,
        "x": 1,
        "print(x, end='')": 1,  # else it writes twice
        "x + 'a'": 1,
        "%nosuch": 1,
        "display(x)": 1,
        "x += 1": 0,
    }.items():
        assert len(steady.run(code).kinds()) == 1 + shows, code
        without += not shows
        assert steady.run("%%local\npauses.count(0.0)").result == str(without), code
    steady.run("%%local\nkernel.unobserve_all('_execute_sleep')")


def test_a_usage_error_is_one_line_on_stderr(steady: AutoKernel) -> None:
    ran = steady.run("%nosuch")
    assert ran.kinds() == ["execute_input", "stream"]
    assert ran.text("stderr") == "UsageError: Line magic function `%nosuch` not found.\n"
    assert (ran.reply["status"], ran.reply["ename"], ran.reply["traceback"]) == ("error", "UsageError", [])


def test_payloads_and_user_expressions_are_the_gpu_processs(steady: AutoKernel) -> None:
    steady.run("here = 41")
    ran = steady.run("here?", user_expressions={"more": "here + 1", "bad": "nowhere"})
    assert ran.reply["payload"][0]["source"] == "page"
    assert ran.reply["user_expressions"]["more"]["data"]["text/plain"] == "42"
    assert ran.reply["user_expressions"]["bad"]["ename"] == "NameError"
    ran = steady.run("", silent=True, user_expressions={"more": "here + 2"})
    assert ran.reply["user_expressions"]["more"]["data"]["text/plain"] == "43"
    assert ran.kinds() == []
    assert steady.run("get_ipython().set_next_input('x')").reply["payload"][0]["source"] == "set_next_input"


def test_captured_outputs_displays_and_awaits_work_as_in_any_kernel(steady: AutoKernel) -> None:
    assert steady.run("%%capture got\nprint('a')").kinds() == ["execute_input"]
    assert steady.run("got.stdout").result == r"'a\n'"
    assert steady.run("import asyncio\nawait asyncio.sleep(0, 'slept')").result == "'slept'"
    shown = steady.run("h = display('d', display_id=True); h.update('e'); 'r'; 's'")
    assert shown.kinds() == ["execute_input", "display_data", "update_display_data", "execute_result"]


def test_input_is_asked_where_it_is_allowed_and_refused_where_not(steady: AutoKernel) -> None:
    assert steady.run("input('name?')").reply["ename"] == "StdinNotImplementedError"
    msg_id = steady.client.execute("input('name?')", allow_stdin=True)
    asked = steady.client.get_stdin_msg(timeout=30)
    assert asked["content"] == {"prompt": "name?", "password": False}
    steady.client.input("me")
    assert steady.finish(msg_id).result == "'me'"


@pytest.mark.long("%gpu in rare cases")
def test_a_prompt_ends_with_the_gpu_process_that_asked(notebook: AutoKernel) -> None:
    notebook.run("kept = 1")
    notebook.run("%gpu save")
    for ask in ("input('name?')", "import getpass; getpass.getpass()"):
        msg_id = notebook.client.execute(ask, allow_stdin=True)
        notebook.client.get_stdin_msg(timeout=30)
        os.kill(gpu_pid(notebook), signal.SIGKILL)
        assert notebook.finish(msg_id).reply["ename"] == "GpuProcessDied"
        assert notebook.run("kept").result == "1"
    msg_id = notebook.client.execute("input('name?')", allow_stdin=True)
    notebook.client.get_stdin_msg(timeout=30)
    notebook.client.input("me")
    assert notebook.finish(msg_id).result == "'me'"


def test_interrupt_reaches_the_cell_and_costs_nothing_else(steady: AutoKernel) -> None:
    steady.run("kept = 1")
    pid = gpu_pid(steady)
    msg_id = steady.client.execute("import time\nprint('up', flush=True)\ntime.sleep(60)")
    shown = steady.until(msg_id, lambda ran: "up" in ran.text())
    steady.interrupt()
    ran = steady.finish(msg_id, shown)
    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert ran.kinds()[-1] == "error"
    assert (steady.run("kept").result, gpu_pid(steady)) == ("1", pid)


def test_restart_and_shutdown_end_the_gpu_process_and_auto_mode_is_on_again(notebook: AutoKernel) -> None:
    notebook.run("x = 1")
    pid = gpu_pid(notebook)
    notebook.restart()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))  # noqa: PTH110 - nothing but a look
    assert notebook.run("x").reply["ename"] == "NameError"


# %gpu in a cell with other lines


def test_gpu_lines_inside_a_cell_are_carried_out_by_the_kernel_whether_or_not_input_is_allowed(
    steady: AutoKernel,
) -> None:
    for allowed in (False, True):
        ran = steady.run("print('before')\n%gpu auto\nstatus = %gpu\nprint('after'); status", allow_stdin=allowed)
        assert ran.text() == "before\nAuto mode is on.\nafter\n"
        assert f"→  {steady.name}" in ran.result
        assert set(ran.last("execute_result")["data"]) >= {"text/html", "application/vnd.nls.status+json"}
    assert "Auto mode is on" in steady.run("%%capture got\n%gpu auto").text() + steady.run("got.stdout").result


@pytest.mark.parametrize("command", ["release", "restart", "resume", "save", "suspend"])
def test_what_would_wait_for_the_cell_is_refused_in_it(steady: AutoKernel, command: str) -> None:
    pid = gpu_pid(steady) if steady.daemon.workload(steady.name) else None
    ran = steady.run(f"1\n%gpu {command}")
    assert ran.reply["ename"] == "GpuUsageError"
    assert f"%gpu {command} would wait for the end of the cell that it stands in" in ran.reply["evalue"]
    assert len(ran.last("error")["traceback"]) == 1
    assert gpu_pid(steady) == (pid or gpu_pid(steady))


def test_an_error_of_a_gpu_line_can_be_caught_like_any_other(steady: AutoKernel) -> None:
    code = "try:\n    get_ipython().run_line_magic('gpu', 'dance')\nexcept Exception as e:\n    told = repr(e)\ntold"
    assert steady.run(code).result.startswith("\"GpuUsageError('there is no %gpu dance: there are status,")
    line = "target=get_ipython().run_line_magic, args=('gpu', '')"
    thread = f"from threading import *\nt = Thread({line})\nt.start(); t.join()"
    assert "%gpu works in cells, not in" in steady.run(thread).text("stderr")


@pytest.mark.long("%gpu in rare cases")
def test_a_request_in_mid_cell_changes_the_sizes(notebook: AutoKernel) -> None:
    notebook.run("1")
    assert notebook.run("%gpu request 0.25 --limit 0.5\n'went on'").result == "'went on'"
    assert notebook.entry(phase="running")["request_bytes"] == 64 << 20


# While there is no GPU


@pytest.fixture
def rivals(tmp_path: Path) -> Iterator[tuple[AutoKernel, AutoKernel]]:
    """Two notebooks that both want all of one GPU, and the first has it."""
    with ExitStack() as stack:
        daemon = stack.enter_context(DaemonProcess(tmp_path, "1x256MiB", "--context-memory", "16MiB"))
        kernels = []
        for name in ("holder", "waiter"):
            (tmp_path / name).mkdir()
            whole = {"NLS_REQUEST": "1.0", "NLS_LIMIT": "1.0"}
            kernels.append(stack.enter_context(AutoKernel(tmp_path / name, daemon, **whole)))
        kernels[0].run("%gpu keep 1h")
        kernels[0].run("held = 1")
        yield kernels[0], kernels[1]


@LONG
def test_every_real_cell_waits_with_a_line_that_offers_local_and_leaves_nothing(
    rivals: tuple[AutoKernel, AutoKernel],
) -> None:
    holder, waiter = rivals
    sleeping = holder.client.execute("import time\nprint('up', flush=True)\ntime.sleep(60)")
    holder.until(sleeping, lambda ran: "up" in ran.text())
    msg_id = waiter.client.execute("1 + 1")
    shown = waiter.until(msg_id, lambda ran: "display_data" in ran.kinds())
    line = shown[-1]["content"]["data"]["text/plain"]
    assert "waiting for a GPU" in line
    assert line.endswith("; a %%local cell needs no GPU")
    waiter.interrupt()
    ran = waiter.finish(msg_id, shown)
    assert ran.kinds()[-2:] == ["clear_output", "error"]
    assert (ran.reply["ename"], ran.reply["execution_count"]) == ("KeyboardInterrupt", 1)
    assert ran.reply["evalue"].startswith("the cell was interrupted before it began (waiting for a GPU")
    hidden = waiter.run("1", silent=True, user_expressions={"one": "1"})
    assert hidden.reply["user_expressions"]["one"]["data"] == {"text/plain": "1"}  # answered, and waits for nothing
    assert waiter.run("%%local\n2").result == "2"
    holder.interrupt()
    assert holder.finish(sleeping).reply["ename"] == "KeyboardInterrupt"


SLOW_TO_TAKE_AWAY = """%%local
import time
from nls_jupyter.notebook.cells import LiveLine
show = LiveLine.show
def slowly(self, text):
    time.sleep(1 if text is None else 0)
    show(self, text)
LiveLine.show = slowly
"""


@pytest.mark.long("auto mode in rare cases: the common ones are tried here")
def test_what_a_cell_puts_out_after_its_wait_stays_however_late_the_line_goes(
    rivals: tuple[AutoKernel, AutoKernel],
) -> None:
    holder, waiter = rivals
    waiter.run(SLOW_TO_TAKE_AWAY, store_history=False)  # the first cell needs no inputs of earlier ones
    msg_id = waiter.client.execute("1 + 1")
    shown = waiter.until(msg_id, lambda ran: "display_data" in ran.kinds())
    holder.run("%gpu release")
    ran = waiter.finish(msg_id, shown)
    assert ran.kinds()[-2:] == ["clear_output", "execute_result"]


@LONG
def test_requests_that_are_no_cells_do_not_bring_a_suspended_gpu_process_back(notebook: AutoKernel) -> None:
    notebook.run("kept = [1]")
    notebook.run("%gpu suspend")
    notebook.entry(phase="suspended")
    silent = notebook.run("kept", silent=True, user_expressions={"k": "kept"})
    assert silent.reply["evalue"].startswith(GONE)
    assert silent.kinds() == []
    assert notebook.run("kept", store_history=False).kinds() == ["execute_input", "error"]
    assert notebook.client.complete("kep", reply=True, timeout=60)["content"]["matches"] == []
    assert notebook.client.inspect("kept", reply=True, timeout=60)["content"]["found"] is False
    assert notebook.ask("is_complete_request", {"code": "for x in kept:"})["status"] == "incomplete"
    assert notebook.debug("debugInfo")["body"]["isStarted"] is False
    assert "no GPU process" in notebook.debug("initialize")["message"]
    assert notebook.entry()["phase"] == "suspended"
    assert notebook.run("kept").result == "[1]"


@pytest.mark.long("%gpu in rare cases")
def test_the_last_results_go_on_after_a_suspend(notebook: AutoKernel) -> None:
    notebook.run("'text'")
    notebook.run("%gpu suspend")
    assert notebook.run("_").result == "'text'"
    notebook.run("[2]")
    assert notebook.run("_, __").result == "([2], 'text')"


# As editors send it: two ways to say that it is no cell of the user's.
HIDDEN = (
    ("import os, sys; os.environ['HIDDEN'] = '1'; sys.path.insert(0, '/hidden')", {"silent": True}, ""),
    ("__vsc_ipynb_file__ = '/x.ipynb'; setting = 'of the editor'", {"silent": False, "stop_on_error": False}, ""),
    ("print('once'); order = os.environ['HIDDEN'] + __vsc_ipynb_file__", {"silent": True}, "once\n"),
)
SEEN = "os.environ['HIDDEN'], '/hidden' in sys.path, __vsc_ipynb_file__, order"


@pytest.mark.long("%gpu in rare cases")
def test_hidden_code_before_the_first_cell_runs_in_each_new_gpu_process_before_the_users(notebook: AutoKernel) -> None:
    for code, options, shown in HIDDEN:
        ran = notebook.run(code, store_history=False, **options)
        assert (ran.reply["status"], ran.text()) == ("ok", shown)
    assert notebook.daemon.workload(notebook.name) is None
    seen = "('1', True, '/x.ipynb', '1/x.ipynb')"
    ran = notebook.run(f"setting = 'of the user'\n{SEEN}")
    assert (ran.result, ran.reply["execution_count"], ran.text()) == (seen, 1, "")
    notebook.run("%gpu suspend")
    assert notebook.run(f"({SEEN}), setting").result == f"({seen}, 'of the user')"
    notebook.run("%gpu restart")
    assert notebook.run(f"({SEEN}), setting").result == f"({seen}, 'of the editor')"
    # From now on such requests are for the GPU process that is there.
    notebook.run("later = 1", silent=True, store_history=False)
    assert notebook.run("later").result == "1"


@LONG
def test_what_is_wrong_with_hidden_code_is_told_in_the_log(notebook: AutoKernel) -> None:
    notebook.run("1 / 0", silent=True, store_history=False)
    notebook.run("there = 1", silent=True, store_history=False)
    ran = notebook.run("there")
    assert (ran.result, ran.text("stderr")) == ("1", "")
    told = "Hidden code of the frontend failed in the GPU process: ZeroDivisionError: division by zero."
    assert told in notebook.run("%gpu log").text()


def test_a_gpu_process_that_dies_in_a_cell_or_a_request_is_told_and_the_kernel_lives(notebook: AutoKernel) -> None:
    notebook.run("kept = 1")
    notebook.run("%gpu vars")  # waits for the save
    ran = notebook.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert ran.reply["ename"] == "GpuProcessDied"
    assert ran.kinds() == ["execute_input", "error"]
    assert notebook.run("kept").result == "1"
    ran = notebook.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", silent=True)
    assert (ran.reply["ename"], ran.kinds()) == ("GpuProcessDied", [])
    os.kill(notebook.pid, signal.SIGINT)  # harmless while nothing runs
    assert notebook.run("kept").result == "1"


# Completion and help


@LONG
def test_with_retry_a_cell_whose_process_was_killed_runs_again_on_the_saved_variables(notebook: AutoKernel) -> None:
    notebook.run("%%local\n%config GpuMagics.retry = True")
    notebook.run("kept = 5")
    killed = "import os, pathlib\nfirst = not pathlib.Path('mark').exists()\npathlib.Path('mark').touch()\n"
    ran = notebook.run(killed + "kept += 1\nif first: os._exit(3)\nkept")
    assert (ran.reply["status"], ran.result) == ("ok", "6")
    assert "running the cell again on the variables of cell [2] (attempt 2)" in ran.text("stderr")


def test_completion_and_help_know_the_gpu_processs_names(steady: AutoKernel) -> None:
    steady.run("unusual_name = 'text'")
    code = "if True:\n    unusual_name.upp\n    pass"
    # A GPU process that does not answer soon, on a busy machine, has nothing to offer.
    wait_until(
        lambda: (
            steady.client.complete(code, code.index("upp") + 3, reply=True)["content"]["matches"]
            in (["upper"], [".upper"])
        )
    )
    told = {}
    wait_until(lambda: told.update(steady.client.inspect("unusual_name", reply=True)["content"]) or told["found"])
    assert "text" in told["data"]["text/plain"]
    local = steady.client.complete("%%local\nunusual_n", reply=True, timeout=60)["content"]
    assert local["matches"] == []


@LONG
def test_completion_in_a_gpu_cell_of_an_ordinary_notebook_asks_the_gpu_process(
    two_gpus: DaemonProcess, tmp_path: Path
) -> None:
    with AutoKernel(tmp_path, two_gpus, "python3") as kernel:
        kernel.run("%%gpu\nunusual_name = 'text'")
        # A GPU process that does not answer soon, on a busy machine, has no completions to offer.
        wait_until(
            lambda: kernel.client.complete("%%gpu\nunusual_n", reply=True)["content"]["matches"] == ["unusual_name"]
        )
        wait_until(lambda: kernel.client.inspect("%%gpu\nunusual_name", reply=True)["content"]["found"])
        assert kernel.client.complete("unusual_n", reply=True)["content"]["matches"] == []


@pytest.mark.parametrize(
    ("code", "matches"),
    [
        ("%gpu su", ["suspend"]),
        ("x = 1\n%gpu re", ["recompute", "release", "request", "restart", "restore", "resume"]),
        ("%gpu request 0.5 --pr", ["--priority"]),
        ("%gpu auto ", ["off", "on"]),
        ("%%gpu --no-wait --", ["--help", "--input", "--output", "--retry", "--timeout"]),
    ],
)
def test_gpu_lines_complete_themselves(steady: AutoKernel, code: str, matches: list[str]) -> None:
    assert sorted(steady.client.complete(code, reply=True, timeout=60)["content"]["matches"]) == matches
