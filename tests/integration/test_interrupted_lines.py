"""Ctrl-C while a `%gpu` line works, or a cell waits: a sentence of what comes of it, and nothing of our own code."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from notebooks import Bench, Book

pytestmark = pytest.mark.kernel

SLOW_TO_SAVE = """
import pathlib, time
class Slow:
    def __reduce__(self):
        while pathlib.Path({slow!r}).exists():
            pathlib.Path({begun!r}).touch()
            time.sleep(0.005)
        return Slow, ()
slow, quick = Slow(), 1"""


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    book = bench.open()
    book.fails("1 / 0")  # IPython imports what shows a traceback now: an interrupt in that import would break it
    yield book
    book.close()
    wait_until(lambda: bench.daemon.workload(book.name) is None)


def interrupted_in_its_save(book: Book, line: str, directory: Path) -> str:
    """What its user reads of the line."""
    slow, begun = directory / "slow", directory / "begun"
    book.gpu(SLOW_TO_SAVE.format(slow=str(slow), begun=str(begun)))
    book.run("%gpu vars")  # waits for the save
    slow.touch()
    cell = book.start(line)
    cell.until(lambda _: begun.exists())
    book.interrupt()
    failed = cell.fail()
    slow.unlink()
    (shown,) = failed.outputs.document[-1]["traceback"]
    return str(shown)


@pytest.mark.long("interrupts in rare moments")
def test_a_save_that_is_interrupted_ends_with_a_sentence(book: Book, tmp_path: Path) -> None:
    shown = interrupted_in_its_save(book, "%gpu save", tmp_path)
    assert shown == "\x1b[0;31mKeyboardInterrupt\x1b[0m: the cell was interrupted"
    assert book.gpu("quick").result == "1"


@pytest.mark.long("%gpu lines that are interrupted in rare cases")
def test_a_release_that_is_interrupted_is_not_blamed_on_the_save(book: Book, tmp_path: Path) -> None:
    shown = interrupted_in_its_save(book, "%gpu release", tmp_path)
    assert shown.endswith("nobody waits any more: %gpu log says whether the GPU was released before that")
    assert book.gpu("quick").result == "1"
    log = book.run("%gpu log").stdout
    assert "%gpu release was interrupted: this notebook keeps its GPU." in log
    assert "could not be saved" not in log


@pytest.mark.long("%gpu lines that are interrupted in rare cases")
def test_a_restart_that_was_interrupted_says_that_it_is_carried_out(bench: Bench, book: Book) -> None:
    book.gpu("quick = 1")
    pid = book.entry(phase="running")["pid"]
    daemon = bench.daemon.process
    assert daemon is not None
    daemon.send_signal(signal.SIGSTOP)
    try:
        cell = book.start("%gpu restart")
        cell.until(lambda _: not Path(f"/proc/{pid}").exists())
        book.interrupt()
        failed = cell.fail()
    finally:
        daemon.send_signal(signal.SIGCONT)
    assert failed.evalue == "nobody waits any more: the restart had begun, and is carried out all the same"
    assert book.fails("%%gpu\nquick").ename == "NameError"


@pytest.mark.long("tracebacks in rare cases")
def test_a_line_inside_a_gpu_cell_shows_nothing_of_ours_either(bench: Bench, book: Book) -> None:
    daemon = bench.daemon.process
    assert daemon is not None
    book.gpu("1")
    daemon.send_signal(signal.SIGSTOP)
    try:
        cell = book.start("%%gpu\nprint('up', flush=True)\n%gpu")
        cell.until(lambda outputs: "up" in outputs.stdout)
        book.interrupt()
        failed = cell.fail()
    finally:
        daemon.send_signal(signal.SIGCONT)
    (shown,) = [output for output in failed.outputs.document if output["output_type"] == "error"]
    assert "nls_jupyter" not in "".join(shown["traceback"])


@pytest.mark.long("waits that are interrupted in each of their steps")
def test_a_cell_that_never_had_a_gpu_says_that_it_did_not_begin_and_for_what_it_waited(
    bench: Bench, book: Book
) -> None:
    book.gpu("1")
    book.run("%gpu request 1.0 --limit 1.0")
    book.run("%gpu keep 1h")
    other = bench.open()
    cell = other.start("%%gpu\n1")
    cell.until(lambda outputs: any("waiting for a GPU" in line for line in outputs.displays))
    other.interrupt()
    assert cell.fail().evalue.startswith("the cell was interrupted before it began (waiting for a GPU: 1st in queue, ")
    other.close()
