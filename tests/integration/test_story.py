"""The story in real notebooks on two simulated GPUs, and its hard ends on one."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from left_out import thinned
from notebooks import Bench, Book
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG = pytest.mark.long("waits, turns and deaths of real notebooks: a move, a death and a turn are lived through here")


QUICK_TURNS = ("--set", "residency_per_move=0", "--set", "min_residency_s=0", "--set", "cool_down_s=0")
QUICK_RECLAIM = ("--set", "reclaim_deadline_s=10", "--set", "stop_grace_s=1")
TOTAL = 256 << 20
LOAD = """
from nls_jupyter import xp
base = xp.arange(1000, dtype=xp.float32)
view = base[10:]"""
DEAF = """
import time
while True:
    try: time.sleep(0.01)
    except KeyboardInterrupt: pass
"""
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)"


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("two"), "2x256MiB", *QUICK_TURNS) as bench:
        yield bench


@pytest.fixture(scope="module")
def one_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("one"), "1x256MiB", *QUICK_TURNS, *QUICK_RECLAIM) as bench:
        yield bench


def open_two(bench: Bench) -> Iterator[tuple[Book, Book]]:
    books = bench.open(), bench.open()
    yield books
    for book in books:
        book.close()
    wait_until(lambda: not bench.daemon.status()["workloads"])


@pytest.fixture
def pair(two_gpus: Bench) -> Iterator[tuple[Book, Book]]:
    """Two notebooks on two Gpus."""
    yield from open_two(two_gpus)


@pytest.fixture
def rivals(one_gpu: Bench) -> Iterator[tuple[Book, Book]]:
    """Two notebooks on one Gpu."""
    yield from open_two(one_gpu)


@pytest.fixture
def book(one_gpu: Bench) -> Iterator[Book]:
    """One notebook on one Gpu."""
    opened = one_gpu.open()
    yield opened
    opened.close()
    wait_until(lambda: not one_gpu.daemon.status()["workloads"])


def hold(share: float) -> str:
    return f"from nls_jupyter import xp\nheld = xp.ones(int({TOTAL} * {share}) // 4, dtype=xp.float32)"


@contextmanager
def third(bench: Bench, request: str) -> Iterator[Callable[[], None]]:
    """A workload `training-7`, and what ends it."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = bench.daemon.start_nls("run", "--name", "training-7", "--request", request, "--", *command)

    def end() -> None:
        process.terminate()
        process.wait(30)

    try:
        yield end
    except AssertionError:
        end()
        print(process.returncode, process.stderr.read() if process.stderr else "", bench.daemon.log[-3000:])
        raise
    finally:
        end()


@pytest.fixture
def full(one_gpu: Bench) -> Iterator[Callable[[], None]]:
    """The only Gpu is held by `training-7`; call it to end that."""
    with third(one_gpu, "1.0") as end:
        one_gpu.daemon.wait_for("training-7", phase="running")
        yield end


def spread(books: tuple[Book, Book]) -> dict[str, list[str]]:
    """Where they are once each has a Gpu to itself."""

    def apart() -> dict[str, list[str]]:
        entries = [book.entry() for book in books]
        places = {entry["name"]: entry["current"] for entry in entries if entry["phase"] == "running"}
        return places if len({tuple(place) for place in places.values()}) == 2 else {}

    return wait_until(apart)


def seen_holding(book: Book, share: float) -> None:
    """Until the daemon has seen how much it holds: what it decides before is not about that."""
    wait_until(lambda: book.entry()["memory_used_bytes"] >= share * TOTAL)


@pytest.mark.parametrize("request_of_third", thinned(["1.0", "0.6"], 2, "sizes of a third workload"))
def test_one_notebook_moves_for_a_third_workload_and_back(
    two_gpus: Bench, pair: tuple[Book, Book], request_of_third: str
) -> None:
    daemon = two_gpus.daemon
    for book in pair:
        book.run("cpu = ['only', 'here']\n%gpu request 0.5 --limit 1.0")
        assert book.gpu(LOAD).stderr == ""
    kernels = [book.pid() for book in pair]
    before = spread(pair)
    assert len({tuple(book.entry()["home"]) for book in pair}) == 1
    for book in pair:
        book.gpu(hold(0.7))
        book.gpu("del held")
    with third(two_gpus, request_of_third):
        training = daemon.wait_for("training-7", 30, phase="running")
        sharing = [w["name"] for w in daemon.status()["workloads"] if w["current"] == training["current"]]
        assert sharing == ["training-7"]
        for book in pair:
            book.entry(phase="running")
        (moved,) = [book for book in pair if book.entry()["current"] != before[book.name]]
        (stayed,) = [book for book in pair if book is not moved]
        outputs = moved.gpu("view[0] = 7.0\nfloat(base[10]), float(base[-1])")
        assert outputs.result == "(7.0, 999.0)"
        gone, home = (f"GPU {number}" for number in ((1, 0) if training["gpus"] == ["GPU 1"] else (0, 1)))
        assert re.search(rf"GPU: Moved from {gone} to {home} because training-7 needs {gone} \(\d", outputs.stderr)
        assert "training-7 needs" in moved.run("%gpu log").stdout
        assert stayed.gpu("float(base[-1])").stderr == ""
    spread(pair)
    assert [book.pid() for book in pair] == kernels
    assert [book.run("cpu").result for book in pair] == ["['only', 'here']"] * 2
    assert [book.gpu("view[1] = 3.0\nfloat(base[11]), float(base[-1])").result for book in pair] == ["(3.0, 999.0)"] * 2


def test_a_gpu_process_killed_in_mid_cell_costs_the_cell_and_nothing_else(book: Book) -> None:
    book.run("cpu = 1")
    kernel = book.pid()
    book.gpu(LOAD)
    book.run("%gpu vars")  # waits for the save
    cell = book.start(f"%%gpu\nlost = 1\n{SLEEP}")
    cell.until(lambda outputs: "up" in outputs.stdout)
    os.kill(book.entry(phase="running")["pid"], signal.SIGKILL)
    failed = cell.fail()
    assert failed.ename == "GpuProcessDied"
    assert failed.evalue == (
        "the GPU process was killed by SIGKILL (signal 9), as the out-of-memory killer does, in the middle of this "
        "cell. The kernel and its variables live; the GPU process comes back with the 3 variables of cell [3]."
    )
    assert len(failed.outputs.document[-1]["traceback"]) == 1
    outputs = book.gpu("view[0] = 5.0\nfloat(base[10]), 'lost' in globals()")
    assert outputs.result == "(5.0, False)"
    assert "back on GPU 0 with the variables of cell [3]" in outputs.stderr
    assert (book.pid(), book.run("cpu").result) == (kernel, "1")


@LONG
def test_a_second_cell_right_after_the_death_waits_for_the_new_process(book: Book) -> None:
    book.gpu("x = 1")
    book.run("%gpu vars")  # waits for the save
    for code in ("import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"):
        assert book.fails(f"%%gpu\n{code}").ename == "GpuProcessDied"
        assert book.gpu("x").result == "1"


def test_two_notebooks_that_do_not_fit_take_turns_and_lose_nothing(rivals: tuple[Book, Book]) -> None:
    for book in rivals:
        assert book.gpu(hold(0.6) + f"\nmine = {book.name!r}").stdout == ""
        seen_holding(book, 0.6)
    for book, other in (rivals, rivals[::-1], rivals):
        outputs = book.gpu("float(held.min()), float(held.max()), mine")
        assert outputs.result == f"(1.0, 1.0, {book.name!r})"
        assert f"{other.name} needs GPU 0" in outputs.stderr
        assert other.entry()["phase"] == "suspended"


@LONG
def test_the_live_line_says_position_holder_and_since_when_and_leaves_nothing(
    full: Callable[[], None], book: Book
) -> None:
    cell = book.start("%%gpu\n'ran'")
    lines = cell.until(lambda outputs: outputs.displays).displays
    assert re.match(
        r"waiting for a GPU: 1st in queue, no room for 128 MiB on one GPU: GPU 0 is held by training-7 "
        r"\(training-7 is there since \d\d:\d\d:\d\d\); 1 s so far",
        lines[0],
    )
    full()
    outputs = cell.finish()
    assert outputs.result == "'ran'"
    assert [output["output_type"] for output in outputs.document] == ["execute_result"]
    assert outputs.stderr == ""


@LONG
@pytest.mark.parametrize("magic", ["", "%%time\n"])
def test_a_wait_in_the_middle_of_a_cell_does_not_clear_what_it_put_out(
    full: Callable[[], None], book: Book, magic: str
) -> None:
    cell = book.start(f"{magic}print('before')\nget_ipython().run_cell_magic('gpu', '', 'print(1)')")
    cell.until(lambda outputs: outputs.displays)
    full()
    outputs = cell.finish()
    assert outputs.stdout.startswith("before\n1\n")
    first, second = (output["text"] for output in outputs.document if output["output_type"] == "stream")
    assert first == "before\n"
    assert second.startswith("1\n")
    assert outputs.displays[-1] == ""


GIVEN_UP = "this notebook's place in the queue was given up while the cell waited"


def test_a_release_from_outside_ends_the_wait_and_the_next_cell_asks_again(
    full: Callable[[], None], book: Book, one_gpu: Bench
) -> None:
    cell = book.start("%%gpu\nran = True")
    cell.until(lambda outputs: outputs.displays)
    assert one_gpu.daemon.nls("release", book.name).returncode == 0
    error = cell.fail()
    assert (error.ename, error.evalue) == (
        "GpuUnavailable",
        f"{GIVEN_UP}: released by its user. The cell did not run; the next one asks again.",
    )
    full()
    outputs = book.gpu("'ran' in globals()")
    assert outputs.result == "False"
    assert "place on the GPU has ended (released by its user)" in outputs.stderr


def test_ctrl_c_ends_the_wait_and_the_cell_has_not_run(full: Callable[[], None], book: Book) -> None:
    cell = book.start("%%gpu\nran = True")
    cell.until(lambda outputs: outputs.displays)
    book.interrupt()
    assert cell.fail().ename == "KeyboardInterrupt"
    assert [output["output_type"] for output in cell.outputs.document] == ["error"]
    full()
    assert book.gpu("'ran' in globals()").result == "False"


@LONG
def test_no_wait_fails_at_once_and_timeout_bounds_the_wait_only(full: Callable[[], None], book: Book) -> None:
    failed = book.fails("%%gpu --no-wait\n1")
    assert failed.ename == "GpuUnavailable"
    assert "no GPU is free now: no room for 128 MiB on one GPU: GPU 0 is held by training-7." in failed.evalue
    assert "The cell did not run; without --no-wait it waits for a GPU." in failed.evalue
    failed = book.fails("%%gpu --timeout 0.2\n1")
    assert failed.evalue == (
        "no GPU within 0.2 s: no room for 128 MiB on one GPU: GPU 0 is held by training-7. The cell did not run."
    )
    full()
    book.entry(phase="running")
    assert book.run("%%gpu --no-wait\n1").result == "1"
    assert book.run("%%gpu --timeout 0\nimport time; time.sleep(0.5); 2").result == "2"


@LONG
def test_who_waits_has_its_request_at_the_deadline_though_the_other_goes_on_executing(
    rivals: tuple[Book, Book],
) -> None:
    """The cell hears nothing of the interrupt, so its process is stopped, and what it computed is lost."""
    alice, bob = rivals
    alice.gpu("kept = 1")
    alice.run("%gpu vars")  # waits for the save
    running = alice.start(f"%%gpu\n{hold(0.9)}\nprint('up')\n{DEAF}")
    running.until(lambda outputs: "up" in outputs.stdout)
    seen_holding(alice, 0.9)
    assert bob.gpu("'here'").result == "'here'"
    failed = running.fail()
    assert failed.ename == "GpuEvicted"
    assert f"taken back in the middle of this cell: {bob.name} needs GPU 0" in failed.evalue
    assert "comes back with the 1 variable of cell [1]. Run the cell again." in failed.evalue
    outputs = alice.gpu("kept, 'held' in globals()")
    assert outputs.result == "(1, False)"
    assert f"{bob.name} needs GPU 0" in outputs.stderr


@LONG
def test_a_cell_that_must_yield_is_interrupted_in_time_and_loses_nothing(rivals: tuple[Book, Book]) -> None:
    alice, bob = rivals
    alice.gpu("kept = 1")
    running = alice.start(f"%%gpu\n{hold(0.9)}\n{SLEEP}")
    running.until(lambda outputs: "up" in outputs.stdout)
    seen_holding(alice, 0.9)
    assert bob.gpu("'here'").result == "'here'"
    failed = running.fail()
    assert failed.ename == "GpuReclaimed"
    assert f"the GPU was taken back: {bob.name} needs GPU 0" in failed.evalue
    outputs = alice.gpu("kept, len(held) > 0")
    assert outputs.result == "(1, True)"
    assert f"{bob.name} needs GPU 0" in outputs.stderr


@LONG
def test_a_daemon_that_dies_costs_nobody_their_gpu_process(one_gpu: Bench, rivals: tuple[Book, Book]) -> None:
    alice, bob = rivals
    alice.gpu("x = [1]")
    before = alice.entry(phase="running")["pid"]
    one_gpu.daemon.kill()
    outputs = alice.gpu("x.append(2); x")
    assert (outputs.result, outputs.stderr) == ("[1, 2]", "")
    for book, cell in ((bob, "%%gpu\n1"), (alice, "%gpu")):
        asking = book.start(cell)
        asking.until(lambda shown: "waiting for it" in shown.stderr + "".join(shown.displays))
        book.interrupt()
        assert asking.fail().ename == "KeyboardInterrupt"
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{before}").exists())
    waiting = alice.start("%%gpu\nx")
    waiting.until(lambda outputs: any("the node's daemon does not answer" in line for line in outputs.displays))
    one_gpu.daemon.start()
    assert waiting.finish().result == "[1, 2]"
    assert bob.gpu("1").result == "1"
