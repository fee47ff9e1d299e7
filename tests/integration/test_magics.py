"""`%gpu` and `%%gpu` in real notebooks with one simulated GPU."""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from notebooks import Bench, Book

LONG = pytest.mark.long("%gpu in rare cases: the common ones are tried here")

pytestmark = pytest.mark.kernel

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)"
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: None)\nprint('up', flush=True)\ntime.sleep(60)"
SLOW_TO_SAVE = """
import pathlib, time
class Slow:
    def __reduce__(self):
        pathlib.Path({begun!r}).touch()
        time.sleep(60)
        return (Slow, ())
slow, quick = Slow(), 1"""


@pytest.fixture(scope="module")
def talker(bench: Bench) -> Iterator[Book]:
    """A notebook for cells that change nothing."""
    book = bench.open("talker.ipynb")
    yield book
    book.close()


@contextmanager
def opened(bench: Bench) -> Iterator[Book]:
    """Nothing of it is left at the daemon behind this."""
    book = bench.open()
    yield book
    book.close()
    wait_until(lambda: bench.daemon.workload(book.name) is None)


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    with opened(bench) as book:
        yield book


@pytest.fixture(scope="class")
def used(bench: Bench) -> Iterator[Book]:
    """A notebook with a GPU, for cells that change nothing that another one of them sees."""
    with opened(bench) as book:
        book.gpu("1")
        yield book


def gpu_pid(book: Book) -> int:
    pid = book.entry(phase="running")["pid"]
    assert isinstance(pid, int)
    return pid


def replaced(book: Book, pid: int) -> bool:
    """Whether another GPU process runs in place of `pid`, as the daemon knows."""
    entry = book.entry()
    return entry["phase"] == "running" and entry["pid"] not in (None, pid)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_cell_that_neither_waited_nor_moved_shows_nothing_of_ours(book: Book) -> None:
    outputs = book.gpu("print('a'); print('b'); 6 * 7")
    assert outputs.document == [
        {"output_type": "stream", "name": "stdout", "text": "a\nb\n"},
        {"output_type": "execute_result", "data": {"text/plain": "42"}, "metadata": {}, "execution_count": 1},
    ]
    assert book.run("Out[1], _1").result == "(42, 42)"


class TestCellsThatLeaveTheNotebookAsItWas:
    def test_an_error_has_its_own_name_and_stops_nothing_else(self, used: Book) -> None:
        used.gpu("x = 1")
        failed = used.fails("%%gpu\n{}['missing']")
        assert (failed.ename, failed.evalue) == ("KeyError", "'missing'")
        assert failed.outputs.stderr == ""
        assert "nls_jupyter" not in "".join(failed.outputs.document[0]["traceback"])
        assert used.gpu("x").result == "1"

    def test_a_usage_error_of_ipython_is_shown_once_and_without_an_old_traceback(self, used: Book) -> None:
        used.fails("%%gpu\n1/0")
        failed = used.fails("%%gpu\n%nosuch")
        assert (failed.ename, failed.outputs.stderr.count("`%nosuch` not found")) == ("UsageError", 1)
        assert [output["output_type"] for output in failed.outputs.document] == ["stream"]
        assert "not found" in used.gpu("get_ipython().run_cell('%nosuch2').success").stderr

    def test_the_status_is_text_and_html_and_json_of_the_same(self, used: Book) -> None:
        used.gpu("1")
        data = used.run("%gpu").document[0]["data"]
        assert set(data) == {"text/plain", "text/html", "application/vnd.nls.status+json"}
        own = data["application/vnd.nls.status+json"]["own"]
        entry = next(w for w in data["application/vnd.nls.status+json"]["workloads"] if w["id"] == own)
        assert (entry["name"], entry["phase"]) == (used.name, "running")
        for form in ("text/plain", "text/html"):
            assert f"This notebook is running on GPU 0: {entry['reason']}." in data[form]
            assert used.name in data[form]
            assert "128 MiB" in data[form]
        assert data["text/plain"].startswith("Simulated GPUs. ")

    def test_inside_the_gpu_process_the_magics_are_plain(self, used: Book) -> None:
        assert used.gpu("%%gpu\nx = 5\nx").result == "5"
        assert "must be the first line of its cell" in used.fails("%%gpu\n%%gpu --no-wait\nx").evalue
        assert used.gpu("%%time\n%%gpu\nx").result == "5"
        assert used.gpu("%gpu auto").stdout == "Auto mode is off.\n"
        assert "would wait for the end of the cell" in used.fails("%%gpu\n%gpu suspend").evalue

    def test_input_of_a_gpu_cell_can_be_refused_and_says_so(self, used: Book) -> None:
        assert "StdinNotImplementedError" in used.fails("%%gpu\ninput('name?')").ename
        assert used.gpu("1").result == "1"

    def test_what_a_cell_captures_is_captured(self, used: Book) -> None:
        used.run("%%capture captured\nget_ipython().run_cell_magic('gpu', '', \"print('a'); display('b')\")")
        assert used.run("captured.stdout, len(captured.outputs)").result == r"('a\n', 1)"

    def test_a_stream_that_fails_ends_the_cell(self, used: Book) -> None:
        failed = used.fails(
            "import contextlib\n"
            "class Broken:\n    def write(self, text): raise OSError('broken')\n    def flush(self): pass\n"
            "with contextlib.redirect_stdout(Broken()):\n"
            f"    get_ipython().run_cell_magic('gpu', '', {SLEEP!r})"
        )
        assert failed.ename in ("OSError", "KeyboardInterrupt")
        assert used.gpu("1").result == "1"

    @pytest.mark.parametrize(
        ("line", "says"),
        [("gen", "is no recipe"), ("1x: 2", "is no recipe"), ("x: 1 +", "is not an expression")],
    )
    def test_what_is_no_recipe_is_refused_with_a_sentence(self, used: Book, line: str, says: str) -> None:
        assert says in used.fails(f"%gpu recompute {line}").evalue


@pytest.mark.long("%gpu in rare cases")
def test_what_this_version_of_ipykernel_lacks_is_told_before_the_first_gpu_cell_and_once(book: Book) -> None:
    code = "from ipykernel.ipkernel import IPythonKernel\nfor kind in IPythonKernel.__mro__:\n"
    book.run(f"{code}    if 'do_debug_request' in vars(kind): del kind.do_debug_request")
    told = book.gpu("print('a')")
    assert (
        "has no IPythonKernel.do_debug_request, seen in 6.29 to 7.4: auto mode cannot be switched on.\n" in told.stderr
    )
    assert (told.stdout, told.stderr.count("GPU: ipykernel ")) == ("a\n", 1)
    assert book.gpu("print('b')").stderr == ""
    assert "has no IPythonKernel.do_debug_request" in book.run("%gpu log").stdout


@pytest.mark.long("%gpu in rare cases")
def test_a_notebook_with_a_long_file_name_gets_a_gpu(bench: Bench) -> None:
    book = bench.open("x" * 200 + ".ipynb")
    book.gpu("1")
    book.close()


def test_a_request_says_what_it_wants_and_can_be_changed(book: Book) -> None:
    status = book.run("%gpu request 0.25 --limit 0.5 --priority 3 --name deep").result
    assert "deep" in (status or "")
    entry = book._bench.daemon.wait_for("deep", phase="running")
    assert (entry["request_bytes"], entry["limit_bytes"], entry["priority"]) == (64 << 20, 128 << 20, 3)
    pid = entry["pid"]
    book.run(f"%gpu request 96MiB --name {book.name}")
    entry = book.entry(phase="running")
    assert (entry["request_bytes"], entry["limit_bytes"], entry["pid"]) == (96 << 20, 128 << 20, pid)
    assert "above the limit" in book.fails("%gpu request 0.6").evalue
    assert book.entry(phase="running")["request_bytes"] == 96 << 20


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%gpu reqest 0.5", "there is no %gpu reqest: did you mean %gpu request?"),
        ("%gpu \x1b[31m", r"there is no %gpu \x1b[31m: there are status"),
        ("%gpu request --limit=--", "Argument --limit: expected one argument. usage: %gpu request"),
        ("%%gpu --timeout=--\n1", "Argument --timeout: expected one argument. usage: %%gpu"),
        ("%%gpu --input=--\n1", "Argument -i/--input: expected one argument. usage: %%gpu"),
        ("%gpu dance", "there is no %gpu dance: there are status, request,"),
        ("%gpu 0.5", "there is no %gpu 0.5: did you mean %gpu request 0.5?"),
        ("%gpu status now", "%gpu status takes nothing more, and got 'now'."),
        ("%gpu request 8Gb4", "'8Gb4' is not a size: write a fraction of a GPU such as 0.5, or bytes such as 8GiB"),
        ("%gpu request 1.5", "'1.5' is not more than 0 and at most 1: write"),
        ("%gpu request 0.5 --limit 0.3", "The request (128 MiB) is above the limit (76.8 MiB): lower the request"),
        ("%gpu request 1TiB", "No GPU of this node has 1 TiB for the request: the largest is GPU 0"),
        ("%gpu request --gpus 3", "This node has 1 usable GPU, not 3: ask for fewer."),
        ("%gpu request --gpus two", "'two' is no number of GPUs: write a whole number from 1 on. usage: %gpu request"),
        ("%gpu request --priority high", "or one of train, build, inference. usage: %gpu request"),
        ("%gpu request 'half", "the line cannot be read: No closing quotation."),
        ("%gpu release", "this notebook holds no GPU; there is nothing to release."),
        ("%gpu restart", "there is no GPU process to restart; %gpu request asks for a GPU."),
        ("%%gpu --no-wiat\n1", "Unrecognized arguments: --no-wiat. usage: %%gpu"),
        ("%%gpu --timeout soon\n1", "'soon' is not a number of seconds"),
        ("%%gpu --timeout -1\n1", "'-1' is not a number of seconds from 0 on"),
    ],
)
def test_bad_input_gets_one_sentence_with_what_to_do(bench: Bench, talker: Book, line: str, sentence: str) -> None:
    failed = talker.fails(line)
    assert sentence in failed.evalue
    assert ".. " not in failed.evalue
    assert failed.ename in ("GpuUsageError", "GpuUnavailable")
    assert len(failed.outputs.document[0]["traceback"]) == 1
    assert bench.daemon.workload(talker.name) is None


@pytest.mark.long("%gpu in rare cases")
def test_a_cell_waits_for_a_daemon_that_does_not_answer_as_long_as_it_is_to(bench: Bench, book: Book) -> None:
    daemon = bench.daemon.process
    assert daemon is not None
    daemon.send_signal(signal.SIGSTOP)
    try:
        failed = book.fails("%%gpu --timeout 0.5\n1")
    finally:
        daemon.send_signal(signal.SIGCONT)
    assert failed.evalue == "no GPU within 0.5 s: the node's daemon does not answer. The cell did not run."
    assert book.gpu("print(6 * 7)").stdout == "42\n"


def test_help_is_help(talker: Book) -> None:
    assert "\n%gpu release  " in talker.run("%gpu --help").stdout
    assert "--no-wait" in talker.run("%%gpu --help\n1").stdout
    assert "--priority N" in talker.run("%gpu request -h").stdout


def test_without_a_daemon_at_the_named_socket_the_sentence_says_how_to_start_one(talker: Book) -> None:
    talker.run("import os; named = os.environ['NLS_SOCKET']; os.environ['NLS_SOCKET'] = '/tmp/no/such.sock'")
    for cell in ("%gpu", "%gpu request 0.5", "%%gpu\n1", "%%gpu --no-wait\n1"):
        failed = talker.fails(cell)
        assert failed.evalue == (
            "No daemon answers at /tmp/no/such.sock: start one with `nls up --socket /tmp/no/such.sock`."
        )
    talker.run("os.environ['NLS_SOCKET'] = named")
    assert "This notebook has no GPU" in (talker.run("%gpu").result or "")


def test_a_released_gpu_comes_back_with_its_variables_and_the_same_sizes(bench: Bench, book: Book) -> None:
    book.run("%gpu request 0.25 --limit 0.5")
    book.gpu("x = [1]\ny = x\ncounter = (i for i in x)")
    pid = gpu_pid(book)
    told = book.run("%gpu release").stdout
    assert told.startswith(
        "Released: 2 variables in host memory, to come back with the next GPU cell; not saved: counter"
    )
    wait_until(lambda: bench.daemon.workload(book.name) is None and gone(pid))
    assert "nothing to release" in book.fails("%gpu release").evalue
    headline = str(book.run("%gpu").result).splitlines()[0]
    assert "saved as of cell [2]" in headline
    assert "a kill takes" not in headline
    outputs = book.gpu("y.append(2); x, 'counter' in globals()")
    assert outputs.result == "([1, 2], False)"
    assert re.search(r"not kept: counter \(a generator [^)]*; made in cell \[2\]\)", outputs.stderr)
    assert book.gpu("x").stderr == ""
    entry = book.entry(phase="running")
    assert (entry["request_bytes"], entry["limit_bytes"]) == (64 << 20, 128 << 20)


@pytest.mark.long("%gpu in rare cases")
def test_names_that_cannot_be_kept_are_told_once(book: Book) -> None:
    book.gpu("kept, counter = 1, (i for i in 'ab')")
    book.run("%gpu vars")  # waits for the save
    for told in (1, 0):
        pid = gpu_pid(book)
        os.kill(pid, signal.SIGKILL)
        wait_until(partial(replaced, book, pid))
        outputs = book.run("%%gpu --timeout 30\nkept")
        assert outputs.result == "1"
        assert outputs.stderr.count("counter") == told
        assert "was killed by SIGKILL (signal 9), as the out-of-memory killer does; back on GPU 0" in outputs.stderr


@LONG
def test_a_restart_begins_empty_and_costs_no_try(book: Book) -> None:
    for _ in range(4):
        book.gpu("x = 1")
        pid = gpu_pid(book)
        assert book.run("%gpu restart").stdout == "Restarted: the next GPU cell begins without variables.\n"
        assert gone(pid)
    assert book.fails("%%gpu\nx").ename == "NameError"
    book.run("%gpu release")
    book.run("%gpu restart")
    assert "Nothing is saved yet" in book.run("%gpu vars").stdout


def test_a_restart_has_the_last_word_on_the_variables_before(book: Book) -> None:
    book.gpu("x = 1")
    book.run("%gpu suspend")
    book.run("%gpu resume")
    wait_until(lambda: "1 variable kept" in book.run("%gpu log").stdout)
    book.run("%gpu restart")
    outputs = book.gpu("'x' in globals()")
    assert outputs.result == "False"
    assert outputs.stderr.rstrip().endswith("GPU process restarted by you; it begins without variables.")
    book.run("%gpu restart")
    assert book.gpu("1").stderr == ""


def test_vars_says_what_is_saved_and_what_is_not_and_why(book: Book) -> None:
    assert "Nothing is saved yet" in book.run("%gpu vars").stdout
    book.gpu("from nls_jupyter import xp\nweights = xp.ones(1000)\nnames = ['a']\ncounter = (i for i in names)")
    lines = book.run("%gpu vars").stdout.splitlines()
    assert lines[0].startswith("Saved after cell [2], ")
    told = {line.split()[0]: line for line in lines[1:]}
    assert told["weights"].endswith("gpu")
    assert told["names"].endswith("host")
    assert "not saved: " in told["counter"]


@LONG
def test_the_log_tells_what_happened_and_when(book: Book) -> None:
    assert "Nothing has happened" in book.run("%gpu log").stdout
    book.gpu("x = 1")
    book.run("%gpu release")
    book.gpu("x")
    log = book.run("%gpu log").stdout
    assert [line[10:].split(" after ")[0] for line in log.splitlines()] == [
        "GPU process ready on GPU 0",
        "GPU released by you; the saved variables come back with the next request.",
        "GPU process ready on GPU 0",
    ]


def test_ctrl_c_interrupts_the_cell_and_keeps_everything(book: Book) -> None:
    book.run("cpu = 1")
    book.gpu("x = 1")
    pids = book.pid(), gpu_pid(book)
    cell = book.start(f"%%gpu\n{SLEEP}")
    cell.until(lambda outputs: "up" in outputs.stdout)
    book.interrupt()
    assert cell.fail().ename == "KeyboardInterrupt"
    assert (book.gpu("x").result, book.run("cpu").result) == ("1", "1")
    assert (book.pid(), gpu_pid(book)) == pids


@pytest.mark.long("interrupts in rare moments")
def test_a_ctrl_c_that_a_stopped_process_does_not_hear_says_how_it_goes_on(book: Book) -> None:
    book.gpu("x = 1")
    pid = gpu_pid(book)
    cell = book.start(f"%%gpu\n{SLEEP}")
    cell.until(lambda outputs: "up" in outputs.stdout)
    os.kill(pid, signal.SIGSTOP)
    book.interrupt()
    cell.until(lambda outputs: f"the GPU process is stopped: `kill -CONT {pid}` has it go on" in outputs.stderr)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: book.interrupt() or cell.over)  # one may reach another of its threads, or be one with the next
    assert cell.fail().ename == "KeyboardInterrupt"
    assert book.gpu("x").result == "1"


@pytest.mark.long("%gpu in rare cases")
def test_a_cell_that_waits_for_a_stopped_process_says_how_it_goes_on(bench: Bench, book: Book) -> None:
    book.gpu("x = 1")
    pid = gpu_pid(book)
    os.kill(pid, signal.SIGSTOP)
    bench.daemon.nls("suspend", book.name)
    book.entry(phase="suspending")
    cell = book.start("%%gpu\nx")
    cell.until(
        lambda outputs: any(f"the GPU process is stopped: `kill -CONT {pid}` has" in line for line in outputs.displays)
    )
    os.kill(pid, signal.SIGCONT)
    assert cell.finish().result == "1"


@LONG
def test_a_cell_that_ignores_ctrl_c_can_be_left_and_ended(book: Book) -> None:
    book.fails("1 / 0")  # IPython imports what shows a traceback now: an interrupt in that import would break it
    cell = book.start(f"%%gpu\n{DEAF}")
    cell.until(lambda outputs: "up" in outputs.stdout)
    book.interrupt()
    cell.until(lambda outputs: "the cell goes on: a second Ctrl-C interrupts it again" in outputs.stderr)
    wait_until(lambda: book.interrupt() or cell.over)
    assert cell.fail().ename == "KeyboardInterrupt"
    assert "one more Ctrl-C leaves the cell alone" in cell.outputs.stderr
    assert "which does not react; %gpu restart ends it" in cell.outputs.stderr
    behind = book.start("%%gpu\n1")
    behind.until(lambda outputs: any("the cell before still runs" in line for line in outputs.displays))
    book.interrupt()
    assert behind.fail().ename == "KeyboardInterrupt"
    *before, error = behind.outputs.document
    assert before == []
    assert "the cell was interrupted before it began (the cell before still runs" in error["evalue"]
    assert error["traceback"] == [f"\x1b[0;31mKeyboardInterrupt\x1b[0m: {error['evalue']}"]
    book.run("%gpu restart")
    assert book.gpu("1").result == "1"


@LONG
def test_a_save_that_hangs_holds_the_next_cell_until_ctrl_c(book: Book, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    book.gpu("quick = 0")
    book.run("%gpu vars")  # waits for the save
    book.gpu(SLOW_TO_SAVE.format(begun=str(begun)))
    wait_until(begun.exists)  # a cell that comes sooner passes the save
    behind = book.start("%%gpu\nquick")
    behind.until(lambda outputs: any("are being saved" in line for line in outputs.displays))
    book.interrupt()
    assert behind.fail().ename == "KeyboardInterrupt"
    outputs = book.gpu("del slow\nquick")
    assert outputs.result == "1"
    assert "could not be saved after cell [3]: it was interrupted; those of cell [1] stand." in outputs.stderr


SAVED_WHEN_IDLE = """
import pathlib, subprocess, time
class Slow(list):
    def __reduce__(self):
        return (Slow, (), None, self.endless())
    def endless(self):
        began = time.monotonic()
        while True:
            if time.monotonic() > began + 0.5:  # far more than a save after a cell may cost
                pathlib.Path({begun!r}).touch()
            time.sleep(0.005)
            yield bytes(100_000)
slow, child = Slow(), subprocess.Popen(['sleep', '600'])"""


@LONG
def test_a_cell_that_runs_while_variables_are_saved_harms_nothing_that_runs_beside(
    bench: Bench, tmp_path: Path
) -> None:
    begun, book = tmp_path / "begun", bench.open()
    book.gpu(SAVED_WHEN_IDLE.format(begun=str(begun)))
    wait_until(begun.exists)
    outputs = book.gpu("print(child.poll())")
    assert (outputs.stdout, outputs.stderr) == ("None\n", "")
    assert book.gpu("child.kill(), child.wait(); del slow; child.poll()").result == "-9"
    assert "could not be saved" not in book.run("%gpu log").stdout
    book.close()


@pytest.mark.parametrize("end", ["close", "restart"])
def test_a_kernel_that_ends_takes_its_gpu_process_with_it(bench: Bench, end: str) -> None:
    book = bench.open()
    book.gpu("import subprocess\nchild = subprocess.Popen(['setsid', 'sleep', '600'])")
    pids = gpu_pid(book), int(book.gpu("child.pid").result or 0)
    getattr(book, end)()
    wait_until(lambda: all(gone(pid) for pid in pids))
    wait_until(lambda: bench.daemon.workload(book.name) is None)
    if end == "restart":
        assert book.gpu("1").result == "1"
        book.close()


@LONG
def test_a_forked_child_of_the_kernel_neither_uses_nor_ends_the_gpu_process(book: Book) -> None:
    book.gpu("x = 1")
    pid = gpu_pid(book)
    child = "multiprocessing.get_context('fork').Process(target=work); child.start(); child.join(); child.exitcode"
    outputs = book.run(
        "import multiprocessing, sys\n"
        "def work():\n"
        "    try: get_ipython().run_cell_magic('gpu', '', '1')\n"
        "    except Exception as error: open('told', 'w').write(str(error))\n"
        "    import atexit\n"
        "    atexit.unregister(get_ipython().atexit_operations)\n"  # IPython 8's may wait for a lock that nobody holds
        "    atexit._run_exitfuncs()\n"
        f"child = {child}"
    )
    assert outputs.result == "0"
    assert "forked child" in (book.run("open('told').read()").result or "")
    assert (book.gpu("x").result, gpu_pid(book)) == ("1", pid)


@LONG
def test_a_kernel_that_a_gpu_cell_starts_is_a_kernel_like_any_other(book: Book) -> None:
    outputs = book.gpu(
        "from jupyter_client.manager import start_new_kernel\n"
        "manager, client = start_new_kernel()\n"
        "code = 'print(type(get_ipython().magics_manager.registry[\"GpuMagics\"]).__name__)'\n"
        "client.execute_interactive(code, timeout=30)\n"
        "client.stop_channels(); manager.shutdown_kernel(now=True)"
    )
    assert "GpuMagics" in outputs.stdout


def test_suspend_takes_the_variables_off_the_gpu_and_the_next_cell_brings_them_back(book: Book) -> None:
    book.gpu("from nls_jupyter import xp\nkept = xp.ones(10)")
    pid = gpu_pid(book)
    assert "Suspended" in book.run("%gpu suspend").stdout
    assert gone(pid)
    assert book.entry()["phase"] == "suspended"
    assert book.run("%%gpu\nfloat(kept.sum())").result == "10.0"


@pytest.mark.long("%gpu in rare cases")
def test_a_cell_waits_for_the_gpu_also_where_the_kernels_clock_has_been_frozen(book: Book) -> None:
    book.gpu("kept = 5")
    book.run("%gpu suspend")
    book.run("import time; real, now = time.monotonic, time.monotonic(); time.monotonic = lambda: now")
    assert book.gpu("kept").result == "5"
    book.run("time.monotonic = real")


def test_a_restart_after_a_release_leaves_nothing_to_tell_of_the_process_before(book: Book) -> None:
    book.gpu("x = 1")
    for command in ("%gpu suspend", "%gpu release", "%gpu restart"):
        book.run(command)
    book.gpu("y = 1")
    log = book.run("%gpu log").stdout
    assert "It was away" not in log
    assert log.splitlines()[-1].split("  ", 1)[1].startswith("GPU process ready on GPU 0 after "), log


def test_a_suspend_that_cannot_save_says_why_at_once_and_the_notebook_goes_on(book: Book) -> None:
    book.gpu("import resource\nunlimited = resource.getrlimit(resource.RLIMIT_FSIZE)\nkept = 5")
    pid = gpu_pid(book)
    book.gpu("resource.setrlimit(resource.RLIMIT_FSIZE, (1, unlimited[1]))")
    failed = book.fails("%gpu suspend")
    assert failed.ename == "GpuUnavailable"
    assert "could not be saved, so this notebook keeps its GPU: " in failed.evalue
    assert (
        "do not fit in the 0 that are left (a file of this process may have 1 B at most, see `ulimit -f`)"
        in failed.evalue
    )
    assert book.gpu("resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)\nkept").result == "5"
    assert gpu_pid(book) == pid
    book.run("%gpu suspend")


def test_what_lacks_room_only_is_not_given_up_by_a_suspend_and_is_named_before(book: Book) -> None:
    book.gpu(
        "import os, resource\nunlimited = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, unlimited[1]))\n"
        "large, small, never = os.urandom(8 << 20), 5, (i for i in ())"
    )
    pid = gpu_pid(book)
    book.run("%gpu save")
    wait_until(lambda: "There is no room to save large" in book.run("%gpu log").stdout)
    assert ", without large, never (%gpu vars says why)" in book.run("%gpu").result
    failed = book.fails("%gpu suspend")
    assert "could not be saved, so this notebook keeps its GPU: there is no room to save large (" in failed.evalue
    assert book.gpu("resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)\nlen(large)").result == str(8 << 20)
    assert gpu_pid(book) == pid
    book.run("%gpu suspend")
    assert book.gpu("len(large)").result == str(8 << 20)


@LONG
def test_resume_brings_them_back_without_a_cell(book: Book) -> None:
    book.gpu("kept = 5")
    book.run("%gpu suspend")
    book.run("%gpu resume")
    book.entry(phase="running")
    assert book.gpu("kept").result == "5"


def test_save_says_what_was_saved_and_what_not(book: Book) -> None:
    book.gpu("kept, counter = 1, (i for i in 'ab')")
    told = book.run("%gpu save").stdout
    assert "Saved 1 variable" in told
    assert "not saved: counter" in told


@pytest.mark.long("%gpu in rare cases")
def test_what_could_not_be_restored_is_shown_kept_and_tried_again_until_it_is_forgotten(
    book: Book, tmp_path: Path
) -> None:
    modules = {name: tmp_path / f"{name}.py" for name in ("net_one", "net_two")}
    for module in modules.values():
        module.write_text("class Net:\n    def __init__(self):\n        self.weights = [1, 2]\n")
    book.gpu(f"import sys\nsys.dont_write_bytecode = True\nsys.path.append({str(tmp_path)!r})")
    book.gpu("import net_one, net_two\none, two, other = net_one.Net(), net_two.Net(), 5\ndel net_one, net_two")
    book.run("%gpu suspend")
    for module in modules.values():
        module.unlink()
    back = book.gpu("print(other)")
    assert back.stdout == "5\n"
    assert "saved, but could not be restored, and tried again: one (ModuleNotFoundError" in back.stderr
    for _ in range(2):
        shown = book.run("%gpu vars").stdout
        assert "saved, could not be restored: ModuleNotFoundError: No module named 'net_one'; tried again" in shown
        book.run("%gpu save")
    assert "is no such name" in book.fails("%gpu forget other").evalue
    assert book.run("%gpu forget two").stdout == "Given up: two.\n"
    assert "two " not in book.run("%gpu vars").stdout
    modules["net_one"].write_text("class Net:\n    pass\n")
    wait_until(lambda: "one could not be restored before and is back" in book.gpu("print('next')").stderr)
    assert book.gpu("print(one.weights)").stdout == "[1, 2]\n"
    assert "could not be restored:" not in book.run("%gpu vars").stdout


@pytest.mark.parametrize("command", ["suspend", "resume", "save"])
def test_without_a_gpu_there_is_nothing_to_suspend_resume_or_save(talker: Book, command: str) -> None:
    assert talker.fails(f"%gpu {command}").ename == "GpuUnavailable"


def test_doctor_names_findings(talker: Book) -> None:
    told = talker.run("%gpu doctor").stdout
    assert "socket" in told
    assert "shared memory" in told or "memfd" in told


@pytest.mark.long("%gpu in rare cases")
def test_a_name_with_a_recipe_is_computed_again_when_the_process_comes_back(book):
    assert "none is recomputed" in recipe_free(book)
    book.gpu("n = {'to the': 3}\ngen = (i * i for i in range(n['to the']))")
    told = book.run("%gpu recompute gen: (i * i for i in range(n['to the']))").stdout
    assert told.splitlines()[1] == "  gen: (i * i for i in range(n['to the']))"
    assert "gen" not in book.run("%gpu save").stdout
    assert "recomputed: (i * i for i in range(n['to the']))" in book.run("%gpu vars").stdout
    book.run("%gpu suspend")
    assert book.gpu("list(gen)").result == "[0, 1, 4]"
    assert "gen" not in book.run("%gpu recompute gen:").stdout
    assert "not saved: gen" in book.run("%gpu save").stdout


def recipe_free(book) -> str:
    book.gpu("pass")
    return book.run("%gpu recompute").stdout
