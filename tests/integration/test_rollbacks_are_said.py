"""Completed work never goes back in silence, whoever ended the GPU process and whoever heard of it."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from notebooks import Bench, Book
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = pytest.mark.long("ways in which cells are lost and said: the plainest are tried here")

pytestmark = pytest.mark.kernel
# While the file is there, no save is finished before the next cell, or the kill, comes.
SLOW = """
import os, time
class Slow:
    def __reduce__(self):
        time.sleep(3 if os.path.exists({flag!r}) else 0)
        return Slow, ()
slow, n = Slow(), 0
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("r"), "1x256MiB") as running:
        yield running


class Unsaved:
    """A notebook in which five cells have completed since the last save."""

    def __init__(self, bench: Bench, flag: Path) -> None:
        self.book: Book = bench.open()
        self.book.gpu(SLOW.format(flag=str(flag)))
        self.pid = int(self.book.entry(phase="running")["pid"])
        self.book.run("%gpu save")
        flag.touch()
        self.cells = [self.cell("n += 1") for _ in range(5)]

    def cell(self, code: str = "pass") -> str:
        """Its label."""
        return f"[{int(self.book.gpu(f'{code}; get_ipython().displayhook.prompt_count').result)}]"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@pytest.fixture
def unsaved(bench: Bench, tmp_path: Path) -> Iterator[Unsaved]:
    it = Unsaved(bench, tmp_path / "slow")
    yield it
    it.book.close()


def lost_cells(text: str) -> int:
    """As many as the text says."""
    found = re.search(r"It is back as of cell \[\d+\]: (?:(\d+) )?cells? (.*?) ran after it and", text)
    return 0 if found is None else int(found[1] or len(found[2].replace(" and ", ", ").split(", ")))


@pytest.mark.long("deaths that nobody hears of, and what is told of them")
def test_a_death_that_nobody_heard_of_is_told_with_the_cells_it_took(bench: Bench, unsaved: Unsaved) -> None:
    bench.daemon.kill()
    unsaved.kill()
    bench.daemon.start()
    back = unsaved.book.gpu("print(n)")
    assert lost_cells(back.stderr) == 5 - int(back.stdout) > 0
    assert "Traceback" not in back.stderr
    assert lost_cells(unsaved.book.run("%gpu log").stdout) == lost_cells(back.stderr)
    assert unsaved.book.gpu("n").stderr == ""


@LONG
def test_so_is_one_together_with_the_journal(bench: Bench, unsaved: Unsaved) -> None:
    bench.daemon.kill()
    unsaved.kill()
    for file in (bench.daemon.directory / "state").glob("journal*"):
        file.unlink()
    bench.daemon.start()
    back = unsaved.book.gpu("print(n)")
    assert lost_cells(back.stderr) == 5 - int(back.stdout) > 0


@LONG
def test_the_history_that_jupyterlab_shows_names_the_cells(bench: Bench, unsaved: Unsaved) -> None:
    unsaved.kill()
    back = unsaved.book.gpu("print(n)")
    entries = bench.daemon.request("GET", "/v1/history")[1]["entries"]
    told = [entry["lost_cells"] for entry in entries if entry["lost_cells"] and entry["name"] == unsaved.book.name]
    assert told == [unsaved.cells[int(back.stdout) :]]


@LONG
def test_a_release_from_elsewhere_saves_first(bench: Bench, unsaved: Unsaved) -> None:
    release(bench, unsaved.book)
    back = unsaved.book.gpu("print(n)")
    assert back.stdout == "5\n"
    assert lost_cells(back.stderr) == 0


@pytest.mark.long("releases in mid-cell")
def test_a_release_in_mid_cell_interrupts_the_cell_and_saves_what_had_completed(bench: Bench, tmp_path: Path) -> None:
    book = bench.open()
    book.gpu("n = 1")
    ready = tmp_path / "ready"
    running = book.start(f"%%gpu\nimport pathlib, time\nn = 2\npathlib.Path({str(ready)!r}).touch()\ntime.sleep(600)")
    running.until(lambda _: ready.exists())
    release(bench, book)
    assert "GpuReclaimed" in str(running.fail())
    assert book.gpu("print(n)").stdout == "2\n"
    book.close()


def release(bench: Bench, book: Book) -> None:
    """As `nls release` and another tab do."""
    identity = book.entry()["id"]
    assert bench.daemon.request("DELETE", f"/v1/workloads/{identity}")[0] in (200, 202, 204)
    wait_until(lambda: bench.daemon.workload(book.name) is None)
