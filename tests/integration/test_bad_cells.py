"""Cells that do their worst: never a hang, never a dead kernel, never an orphan, and the next cell runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from left_out import thinned
from nls_scheduler.demo.jupyter import CellFailed
from nls_scheduler.processes.guardian import descendants
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from notebooks import Bench, Book

LONG = pytest.mark.long("cells that do harm at length")

SLEEP = "print('up', flush=True)\nimport time\ntime.sleep(600)"
# What ends the GPU process: the name of the error and what its text has.
DEADLY = {
    "leaves by itself": ("import os; os._exit(3)", "exited with code 3"),
    "reads a wild pointer": ("import ctypes; ctypes.string_at(0)", "SIGSEGV (signal 11)"),
    "aborts": ("import os; os.abort()", "SIGABRT (signal 6)"),
    "closes its sockets": ("import os; os.closerange(3, 1000); os._exit(5)", "in the middle of this cell"),
    "deletes builtins": (
        "import builtins\nfor name in ('print', 'len', 'open'): delattr(builtins, name)",
        "in the middle of this cell",
    ),
    "goes on in a forked child": ("import os\nif os.fork(): os.abort()", "SIGABRT (signal 6)"),
}
FORK = "import os, sys, threading\nchild = os.fork()\n"
CODE = "os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
# What forked children do that say nothing, or how they failed.
FORKED = {
    "sys.exit(0)": 0,
    "print('before'); sys.exit(0)": 0,
    "print('before'); sys.exit(3)": 3,
    "print('before'); sys.exit('a text')": 1,
    "1 / 0": 1,
    "print('before'); 1 / 0": 1,
    "try: 1 / 0\nfinally: print('behind')": 1,
    "with Output(): 1 / 0": 0,
    "print('before')\nwith Output(): 1 / 0": 0,
}
# What fails, or does not even that, and leaves the process as it is.
HARMLESS = {
    "imports a broken module": (
        (
            "open('broken_module.py', 'w').write('1 +')\nimport importlib\nimportlib.invalidate_caches()\n"
            "import broken_module"
        ),
        "SyntaxError",
    ),
    "recurses": ("def deeper(): deeper()\ndeeper()", "RecursionError"),
    "exits": ("import sys; sys.exit(4)", "SystemExit"),
    "raises what is no Exception": ("class Odd(BaseException): pass\nraise Odd", "Odd"),
    "raises with a text that raises": (
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no text')\nraise Odd",
        "RuntimeError",
    ),
    "replies with what is no text": ("get_ipython().set_next_input(chr(0xD800)); 1", "UnicodeEncodeError"),
    "closes its standard streams": ("import os; os.closerange(0, 3)", None),
    "closes Python's standard streams": ("import sys; sys.stdout.close()", None),
    "closes a file in the place of a standard stream": (
        "import os, sys; sys.stderr = open(os.devnull, 'w'); sys.stderr.close()",
        None,
    ),
    "puts something in the place of a standard stream that cannot be flushed": (
        "import sys\nclass Log:\n    def write(self, text): pass\nsys.stdout = Log()",
        None,
    ),
    "ignores interrupts": ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)", None),
    "sets another wake-up descriptor": ("import signal; signal.set_wakeup_fd(-1)", None),
    "changes the mask": ("import os; os.environ['CUDA_VISIBLE_DEVICES'] = '7'", None),
    "clears its environment": ("import os; os.environ.clear()", None),
    "changes the directory to one that is gone": (
        "import os, tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
        None,
    ),
    "forks a child that ends": (
        "import os\nchild = os.fork()\nif not child: os._exit(0)\nassert os.waitpid(child, 0)[1] == 0",
        None,
    ),
    "forks a child that runs to the end": (f"{FORK}if child: assert {CODE} == 0", None),
    "forks a child that raises": (f"{FORK}if not child: 1 / 0\nassert {CODE} == 1", None),
    "forks a child that calls sys.exit": (f"{FORK}if not child: sys.exit(7)\nassert {CODE} == 7", None),
    "forks a child that calls exit": (f"{FORK}if child: assert {CODE} == 0\nelse: exit()", None),
    "forks a child that leaves a thread": (
        f"{FORK}if child: assert {CODE} == 5\nelse: threading.Timer(0.1, os._exit, [5]).start()",
        None,
    ),
    "forks a child that asks for another GPU process": (
        f"{FORK}if not child: get_ipython().run_line_magic('gpu', 'release')\nassert {CODE} == 1",
        None,
    ),
}


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    opened = bench.open()
    kernel = opened.pid()
    yield opened
    family = descendants(kernel)
    opened.close()
    wait_until(lambda: bench.daemon.workload(opened.name) is None)
    wait_until(lambda: not [pid for pid in family if Path(f"/proc/{pid}").exists()])


def lives(book: Book) -> bool:
    """The notebook's kernel has its names, and its GPU process runs cells (a new one, if need be)."""
    return book.run("cpu").result == "1" and book.run("%%gpu --timeout 30\n6 * 7").result == "42"


@pytest.mark.parametrize(("code", "text"), thinned(DEADLY.values(), 6, "cells that do harm"), ids=DEADLY)
def test_a_cell_that_ends_its_own_process(book: Book, code: str, text: str) -> None:
    book.run("cpu = 1")
    book.gpu("kept = 5")
    book.run("%gpu save")
    failed = book.fails(f"%%gpu\n{code}")
    assert failed.ename == "GpuProcessDied"
    assert text in failed.evalue
    assert book.run("%%gpu --timeout 30\nkept").result == "5"
    assert lives(book)


@pytest.mark.parametrize(("code", "ename"), thinned(HARMLESS.values(), 9, "cells that do harm"), ids=HARMLESS)
def test_a_cell_that_breaks_only_itself(book: Book, code: str, ename: str | None) -> None:
    book.run("cpu = 1")
    book.gpu("1")
    kernel, entry = book.pid(), book.entry(phase="running")
    told: str | None = None
    try:
        book.gpu(code)
    except CellFailed as failed:
        told = failed.ename
    assert told == ename
    assert lives(book)
    assert (book.pid(), book.entry(phase="running")["pid"]) == (kernel, entry["pid"])
    cell = book.start(f"%%gpu\n{SLEEP}")
    cell.until(lambda outputs: "up" in outputs.stdout or cell.over)
    book.interrupt()
    assert cell.fail().ename in ("KeyboardInterrupt", "ValueError")  # of the closed stream
    book.run("%gpu suspend")
    assert lives(book)


def test_what_forked_children_raise_is_told_on_stderr(book: Book) -> None:
    book.gpu("import os, sys, time\nfrom ipywidgets import Output\ncodes = []")
    cell = book.start(
        f"%%gpu\nfor code in {list(FORKED)}:\n    if not (child := os.fork()):\n        exec(code)\n        break\n"
        f"    codes.append({CODE})\nelse:\n    print(codes, flush=True)\n    time.sleep(600)"
    )
    cell.until(lambda outputs: str(list(FORKED.values())) in outputs.stdout or cell.over)
    cell.until(lambda outputs: outputs.stderr.count("division by zero") == 5 or cell.over)
    cell.until(lambda outputs: "a text\n" in outputs.stderr or cell.over)
    assert not [word for word in ("SystemExit", "To exit: use") if word in cell.outputs.stderr]
    assert not [output for output in cell.outputs.document if output["output_type"] == "error"]
    book.interrupt()
    assert cell.fail().ename == "KeyboardInterrupt"


def test_exit_ends_neither_the_kernel_nor_the_next_cell(book: Book) -> None:
    book.run("cpu = 1")
    book.gpu("kept = 5")
    pid = book.entry(phase="running")["pid"]
    assert "%gpu restart gives you a new, empty GPU process" in book.gpu("exit()").stderr
    assert book.gpu("kept").result == "5"
    assert lives(book)
    assert book.entry(phase="running")["pid"] == pid


def test_a_child_that_floods_the_output_stops_nobody(book: Book) -> None:
    book.run("cpu = 1")
    flood = "head -c 100000000 /dev/zero | tr '\\\\0' x"
    assert book.gpu(f'import subprocess\nsubprocess.run(["sh", "-c", "{flood}"]).returncode').result == "0"
    assert lives(book)


@LONG
def test_ten_thousand_updates_of_a_display_stop_nobody(book: Book) -> None:
    book.gpu("1")  # so that the first display is not the line that says what it waits for
    outputs = book.run(
        "%%gpu\nfrom IPython.display import display\nhandle = display(-1, display_id=True)\n"
        "for i in range(10_000): handle.update(i)\n'done'"
    )
    # Jupyter Server may drop what comes too fast; the kernel and what runs the cell drop nothing.
    assert outputs.displays[0] == "-1"
    assert book.run("Out[3]").result == "'done'"  # the first cell was the fixture's


@LONG
def test_a_kernel_that_is_restarted_in_mid_cell_begins_anew(book: Book) -> None:
    book.gpu("1")
    pid = book.entry(phase="running")["pid"]
    cell = book.start(f"%%gpu\n{SLEEP}")
    cell.until(lambda outputs: "up" in outputs.stdout)
    book.restart()
    with pytest.raises((ConnectionError, CellFailed)):  # whichever reaches the frontend first
        cell.finish()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert book.run("%%gpu --timeout 30\n1").result == "1"


@LONG
def test_a_runtime_directory_with_a_long_path_is_no_obstacle(book: Book, tmp_path: Path) -> None:
    long = tmp_path / ("long" * 30)
    book.run(f"import os; os.environ['JUPYTER_RUNTIME_DIR'] = {str(long)!r}")
    assert book.gpu("1").result == "1"
    assert not [path for path in long.rglob("*") if path.is_socket()]


def test_a_cell_that_deletes_all_names_is_healed_by_a_restart(book: Book) -> None:
    book.run("cpu = 1")
    book.gpu("for name in list(globals()): del globals()[name]")
    book.run("%gpu restart")
    assert lives(book)
