"""`%%gpu --retry`, `GpuReclaimed` and `%gpu keep` in real notebooks with one simulated GPU."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from left_out import thinned
from notebooks import Bench, Book
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = pytest.mark.long("cells that run again: the plainest one runs again here")

AGAIN = """
import os, pathlib, time
first = not pathlib.Path({marker!r}).exists()
pathlib.Path({marker!r}).touch()
print('first' if first else 'again', os.getpid(), flush=True)
while first: time.sleep(0.01)
kept
"""
# It hears nothing: only the end of its process ends it.
DEAF = """
import os, pathlib, signal, time
first = not pathlib.Path({marker!r}).exists()
pathlib.Path({marker!r}).touch()
print('first' if first else 'again', os.getpid(), flush=True)
while first:
    try: time.sleep(0.01)
    except KeyboardInterrupt: pass
kept
"""
DEADLINES = ("--set", "reclaim_deadline_s=2", "--set", "stop_grace_s=0.5")
RECLAIM = """
import threading, time
keeper = get_ipython().magics_manager.registry['GpuMagics'].gpu_of_notebook.supervisor.keeper
thread = get_ipython().magics_manager.registry['GpuMagics'].gpu_of_notebook._thread
def reclaim():
    while not thread.call(keeper.reclaim('bob needs GPU 0', 20.0)): time.sleep(0.01)
threading.Thread(target=reclaim).start()
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), "1x256MiB", *DEADLINES) as running:
        yield running


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    opened = bench.open()
    yield opened
    opened.close()
    wait_until(lambda: bench.daemon.workload(opened.name) is None)


def test_a_cell_whose_process_was_killed_runs_again_on_the_saved_variables(book: Book) -> None:
    book.gpu("kept = 5")
    cell = book.start("%%gpu --retry\nkept += 1\n" + AGAIN.format(marker=book.name + ".killed"))
    outputs = cell.until(lambda shown: "first" in shown.stdout)
    os.kill(int(outputs.stdout.split()[1]), signal.SIGKILL)
    outputs = cell.finish()
    assert outputs.result == "6"
    assert outputs.stdout.split()[::2] == ["first", "again"]
    assert (
        "GPU: the GPU process was killed by SIGKILL (signal 9), as the out-of-memory killer does; "
        "running the cell again on the variables of cell [1] (attempt 2).\n"
    ) in outputs.stderr


def test_without_retry_it_does_not(book: Book) -> None:
    book.gpu("kept = 5")
    cell = book.start("%%gpu\n" + AGAIN.format(marker=book.name + ".once"))
    outputs = cell.until(lambda shown: "first" in shown.stdout)
    os.kill(int(outputs.stdout.split()[1]), signal.SIGKILL)
    assert cell.fail().ename == "GpuProcessDied"
    assert "again" not in cell.outputs.stdout


@LONG
def test_a_cell_that_kills_its_process_twice_has_failed(book: Book) -> None:
    book.run("%config GpuMagics.retry = True")
    # What a process prints in its last moment may be lost with it; what it writes to a file is not.
    failed = book.fails("%%gpu\nimport os\nopen('attempts', 'a').write('x')\nos._exit(3)")
    assert failed.ename == "GpuProcessDied"
    assert book.run("open('attempts').read()").result == "'xx'"
    assert failed.outputs.stderr.count("running the cell again on no variables, as none were saved (attempt 2)") == 1
    assert book.gpu("1").result == "1"


@LONG
def test_a_cell_that_was_driven_out_goes_on_when_its_gpu_is_free_again(bench: Bench, book: Book) -> None:
    book.run("%gpu request 0.25 --limit 1.0")
    book.gpu("from nls_jupyter import xp\nkept = 7")
    cell = book.start("%%gpu --retry\nhold = xp.ones(25 << 20)\n" + DEAF.format(marker=book.name + ".evicted"))
    cell.until(lambda shown: "first" in shown.stdout)
    training = bench.daemon.start_nls("run", "--request", "0.75", "--name", "training", "--", "sleep", "600")
    cell.until(lambda shown: "running the cell again on the variables of cell [2] (attempt 2)" in shown.stderr)
    training.send_signal(signal.SIGTERM)
    assert cell.finish().result == "7"


@pytest.mark.long("cells that run again, in rare cases")
def test_a_reclaimed_cell_says_why_and_its_variables_are_there(book: Book) -> None:
    book.gpu("kept = 1")
    book.run(RECLAIM)
    failed = book.fails("%%gpu\nimport time\nfor kept in range(10**6): time.sleep(0.005)")
    assert failed.ename == "GpuReclaimed"
    assert failed.evalue == (
        "the GPU was taken back: bob needs GPU 0. The cell was interrupted, and its variables are being saved as they "
        "are now. Run the cell again: it waits for a GPU, and says if any of them could not be saved."
    )
    assert book.gpu("0 <= kept < 10**6").result == "True"


@LONG
def test_a_reclaimed_cell_with_retry_goes_on_where_it_was(book: Book) -> None:
    book.gpu("step = 0")
    book.run(RECLAIM)
    outputs = book.run(
        "%%gpu --retry\nimport time\nbegun_at = step\n"
        "while begun_at == 0:\n    step += 1; time.sleep(0.005)\nbegun_at == step > 0"
    )
    assert outputs.result == "True"
    assert "bob needs GPU 0; running the cell again on its variables as they were then (attempt 2)" in outputs.stderr


@pytest.mark.long("cells that run again, in rare cases")
def test_a_save_point_is_what_a_killed_cell_comes_back_with(bench: Bench, book: Book) -> None:
    book.gpu("step = 0")
    outputs = book.run(
        "%%gpu --retry\nimport nls_jupyter, os, signal, time\nbegun_at = step\nstep += 5\n"
        "if begun_at == 0:\n"
        "    while not nls_jupyter.save_point(): time.sleep(0.005)  # too soon, after a save that took long\n"
        "    step = 99\n    os.kill(os.getpid(), signal.SIGKILL)\nbegun_at"
    )
    assert outputs.result == "5"
    assert "on the variables of cell [2], save point 1 (attempt 2)" in outputs.stderr


@LONG
def test_a_notebook_is_kept_until_its_user_says_otherwise(bench: Bench, book: Book) -> None:
    book.gpu("1")
    assert "Kept until " in book.run("%gpu keep 2h").stdout
    assert book.entry(phase="running")["keep_until"] is not None
    assert ", kept until " in (book.run("%gpu").result or "")
    assert "(kept until " in bench.daemon.nls("status").stdout
    assert "No longer kept" in book.run("%gpu keep off").stdout
    assert book.entry(phase="running")["keep_until"] is None


@pytest.mark.parametrize(
    ("line", "sentence"),
    thinned(
        [
            ("%gpu keep", "%gpu keep takes a duration or off."),
            ("%gpu keep 2", "'2' is not a duration: write for example 90s, 10min, 2h or 1d."),
            ("%gpu keep 2000d", "The field 'keep_s' is a number of seconds from 0 to 2592000, or null."),
        ],
        3,
        "wrong durations",
    ),
)
def test_how_long_to_keep_it_must_be_said(book: Book, line: str, sentence: str) -> None:
    book.gpu("1")
    assert book.fails(line).evalue == sentence


def test_without_a_gpu_there_is_nothing_to_keep(book: Book) -> None:
    assert "there is nothing to keep" in book.fails("%gpu keep 2h").evalue
