"""A GPU process that goes in order does what Python does at its end: files have all, and nothing stays behind."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from left_out import thinned
from notebooks import Bench
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from notebooks import Book

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("one"), "1x1GiB") as bench:
        yield bench


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    book = bench.open()
    yield book
    book.close()


WRITES = """%%gpu
written = open({path!r}, "w")
for number in range(100):
    written.write(f"{{number}}\\n")
"""
LEAVES = """%%gpu
import atexit, gzip, os, pathlib, tempfile
folder = tempfile.TemporaryDirectory(dir={folder!r})
packed = gzip.open({folder!r} + "/packed.gz", "wt")
_ = packed.write("all of it")
atexit.register(pathlib.Path({folder!r}, "said").write_text, "goodbye")
print(os.listdir({folder!r}))
"""


@pytest.mark.parametrize("line", thinned(["%gpu suspend", "%gpu release", "%gpu restart"], 3, "ways to leave a GPU"))
def test_what_cells_have_written_is_in_the_file_when_the_process_has_left_the_gpu(
    book: Book, tmp_path: Path, line: str
) -> None:
    path = tmp_path / "rows"
    book.run(WRITES.format(path=str(path)))
    assert path.read_text() == ""
    told = book.run(line).stdout
    assert path.read_text().splitlines() == [str(number) for number in range(100)]
    assert ("not saved: written (an open file cannot be saved)" in told) is (line != "%gpu restart")


def test_who_ends_for_good_runs_what_is_to_run_at_the_end_and_clears_up(book: Book, tmp_path: Path) -> None:
    assert "tmp" in book.run(LEAVES.format(folder=str(tmp_path))).stdout
    book.run("%gpu restart")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed.gz", "said"]
    with gzip.open(tmp_path / "packed.gz", "rt") as packed:
        assert packed.read() == "all of it"


def test_a_kernel_that_ends_has_its_gpu_process_end_in_order(bench: Bench, tmp_path: Path) -> None:
    book = bench.open()
    book.run(LEAVES.format(folder=str(tmp_path)))
    book.close()
    wait_until(lambda: sorted(path.name for path in tmp_path.iterdir()) == ["packed.gz", "said"])


def test_who_goes_on_elsewhere_has_not_ended(book: Book, tmp_path: Path) -> None:
    book.run(LEAVES.format(folder=str(tmp_path)))
    book.run("%gpu suspend")
    assert book.gpu("os.getpid()").result
    assert not (tmp_path / "said").exists()
