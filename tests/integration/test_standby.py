"""The GPU process that stands by, in real notebooks with two simulated GPUs."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from notebooks import Bench, Book
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = pytest.mark.long(
    "processes that stand by, and all that may be wrong with them: coming back in one is tried here"
)

pytestmark = pytest.mark.timeout(400)
KEEPER = "get_ipython().magics_manager.registry['GpuMagics'].gpu_of_notebook.supervisor.keeper"
STANDBY = f"{KEEPER}.standby"
GONE_WITHIN_S = 45.0
READY_WITHIN_S = 150.0
"""It starts when nobody else wants a processor: other tests beside it do."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), "2x256MiB", NLS_STANDBY_MEMORY="0.5") as running:
        yield running


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    opened = bench.open()
    yield opened
    opened.close()
    wait_until(lambda: bench.daemon.workload(opened.name) is None)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def standby_pid(book: Book) -> int:
    """Of the process that stands by, once it is ready."""

    def ready() -> int:
        shown = book.run(f"{STANDBY}.ready and {STANDBY}.pid").result or "False"
        return 0 if shown == "False" else int(shown)

    return wait_until(ready, READY_WITHIN_S)


def gpu_pid(book: Book) -> int:
    return int(book.entry(phase="running")["pid"])


@pytest.mark.long("a process that stands by, in a notebook")
def test_a_notebook_comes_back_in_the_process_that_stood_by(bench: Bench, book: Book) -> None:
    book.gpu("import csv, numpy\nfrom nls_jupyter import xp\nkept = xp.ones(1 << 20)")
    first, standby = gpu_pid(book), standby_pid(book)
    assert {w["pid"] for w in bench.daemon.status()["workloads"]} == {first}
    book.run("%gpu suspend")
    assert gone(first)
    assert not gone(standby)
    outputs = book.gpu(
        "import os, sys, subprocess\n"
        "child = subprocess.run(['printenv', 'NLS_WORKLOAD', 'CUDA_VISIBLE_DEVICES'], capture_output=True, text=True)\n"
        "print([float(kept.sum()), os.getpid(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0),\n"
        " os.getcwd(), 'NLS_STANDBY' in os.environ, *child.stdout.split()])"
    )
    entry = book.entry(phase="running")
    cwd = book.run("import os; os.getcwd()").result
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    shown = f"[1048576.0, {standby}, {nice}, {os.SCHED_OTHER}, {cwd}, False, '{entry['id']}', '{entry['current'][0]}']"
    assert outputs.stdout.strip() == shown
    assert entry["pid"] == standby
    wait_until(lambda: book.entry()["memory_used_bytes"] >= (8 << 20) + (16 << 20))
    assert standby_pid(book) not in (first, standby)


@LONG
def test_what_it_has_imported_takes_the_notebook_for_a_notebook(book: Book) -> None:
    shown = "import pandas\nprint(pandas.get_option('display.max_columns'), pandas.get_option('display.width'))"
    before = book.gpu(shown).stdout
    standby = standby_pid(book)
    book.run("%gpu suspend")
    assert book.gpu(shown).stdout == before == "20 80\n"
    assert gpu_pid(book) == standby


@LONG
def test_it_is_masked_as_the_gpu_that_it_comes_to(bench: Bench, book: Book) -> None:
    bob = bench.open()
    book.gpu("from nls_jupyter import xp\nx = xp.ones(1 << 21)")  # bob, who has less, is the one to move
    bob.gpu("from nls_jupyter import xp\nx = xp.ones(1 << 20)")
    standby, borrowed = standby_pid(bob), bob.entry(phase="running", borrowed=True)["current"]
    training = bench.daemon.start_nls("run", "--name", "training", "--", "sleep", "600")
    try:
        assert bench.daemon.wait_for("training", phase="running")["current"] == borrowed
        entry = bob.entry(phase="running")
        assert entry["pid"] == standby
        assert entry["current"] != borrowed
        mask = bob.gpu("import os\nprint(float(x.sum()), os.environ['CUDA_VISIBLE_DEVICES'])").stdout
        assert mask == f"1048576.0 {entry['current'][0]}\n"
    finally:
        training.send_signal(signal.SIGTERM)
        bob.close()
        wait_until(lambda: not [w for w in bench.daemon.status()["workloads"] if w["name"] in ("training", bob.name)])


@LONG
def test_what_it_imports_reads_the_variables_that_cells_have_set(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As `KERAS_BACKEND`, which Keras reads when it is imported."""
    folder = tmp_path_factory.mktemp("bench")
    packages = folder / "base" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "chooses").mkdir(parents=True)
    (packages / "chooses" / "__init__.py").write_text("import os\nBACKEND = os.environ.get('CHOSEN', 'default')\n")
    paths = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    user = {"PYTHONUSERBASE": str(folder / "base"), "PYTHONPATH": paths}
    with Bench(folder, "2x256MiB", NLS_STANDBY_MEMORY="0.5", **user) as bench:
        book = bench.open()
        book.gpu("import os\nos.environ['CHOSEN'] = 'torch'\nimport chooses")
        standby = standby_pid(book)
        book.run("%gpu suspend")
        assert book.gpu("chooses.BACKEND, os.environ['CHOSEN']").result == "('torch', 'torch')"
        assert gpu_pid(book) == standby
        book.gpu("del os.environ['CHOSEN']")
        book.run("%gpu save")
        replaced = wait_until(lambda: (pid := standby_pid(book)) != standby and pid, READY_WITHIN_S)
        book.run("%gpu suspend")
        assert book.gpu("chooses.BACKEND, os.environ.get('CHOSEN')").result == "('default', None)"
        assert gpu_pid(book) == replaced
        book.close()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_whatever_is_wrong_with_it_the_notebook_starts_cold(book: Book, fault: signal.Signals) -> None:
    book.gpu("import numpy\nx = 5")
    standby = standby_pid(book)
    os.kill(standby, fault)
    if fault is signal.SIGKILL:
        wait_until(partial(gone, standby))
    book.run("%gpu suspend")
    assert book.gpu("x").result == "5"
    assert gpu_pid(book) != standby
    wait_until(partial(gone, standby))
    if fault is signal.SIGSTOP:
        assert "stood by could not be used" in book.run("%gpu log").stdout


@pytest.mark.long("a process that stands by: that it is the next one is here")
@pytest.mark.parametrize("command", ["%gpu release", "%gpu restart"])
def test_it_is_dropped_with_the_gpu(book: Book, command: str) -> None:
    book.gpu("import numpy")
    standby = standby_pid(book)
    book.run(command)
    assert gone(standby)


@LONG
def test_other_packages_or_variables_make_it_useless(book: Book) -> None:
    book.gpu("import numpy\nx = 5")
    standby = standby_pid(book)
    book.run("import os; os.environ['OMP_NUM_THREADS'] = '1'")
    book.run("%gpu suspend")
    assert book.gpu("import os\nx, os.environ['OMP_NUM_THREADS']").result == "(5, '1')"
    assert gpu_pid(book) != standby


@LONG
def test_it_ends_when_the_notebook_is_idle(book: Book) -> None:
    book.run("%config GpuMagics.standby_idle = 3.0")
    book.gpu("import numpy")
    standby = standby_pid(book)
    wait_until(partial(gone, standby))


@LONG
def test_one_that_needs_too_much_memory_is_ended_and_the_log_says_so(book: Book) -> None:
    book.run("import os; os.environ['NLS_STANDBY_MEMORY'] = '1MiB'")
    book.gpu("import numpy")
    wait_until(lambda: "more than the 1 MiB of standby_memory" in book.run("%gpu log").stdout)
    assert book.run(f"{STANDBY}.pid").result is None


@pytest.mark.long("settings of standbys")
def test_a_wrong_setting_is_named(book: Book) -> None:
    book.run("import os; os.environ['NLS_STANDBY_MEMORY'] = 'lots'")
    assert "NLS_STANDBY_MEMORY or GpuMagics.standby_memory: 'lots' is not a size" in book.fails("%%gpu\n1").evalue
    book.run("os.environ |= {'NLS_STANDBY_MEMORY': '0', 'NLS_SAVE_THREADS': 'many'}")
    assert "NLS_SAVE_THREADS is 'many', and not a whole number from 1 on." in book.fails("%%gpu\n1").evalue


@LONG
def test_a_release_is_no_loss_while_the_process_that_stands_by_takes_its_time_to_end(book: Book) -> None:
    book.gpu("import numpy\nkept = 1")
    standby_pid(book)
    slow = f"end = {KEEPER}.drop_standby\nasync def slowly():\n    await __import__('asyncio').sleep(1)\n"
    book.run(f"{slow}    await end()\n{KEEPER}.drop_standby = slowly")
    book.run("%gpu release")
    outputs = book.gpu("kept")
    assert (outputs.result, outputs.stderr) == ("1", "")
    log = [line[10:].split(" after ")[0] for line in book.run("%gpu log").stdout.splitlines()]
    released = "GPU released by you; the saved variables come back with the next request."
    assert log == ["GPU process ready on GPU 0", released, "GPU process ready on GPU 0"]
