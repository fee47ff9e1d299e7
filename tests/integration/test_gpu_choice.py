"""Cells that choose a GPU by `CUDA_VISIBLE_DEVICES`, as many public notebooks do: which it is was decided already."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from notebooks import Bench
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from notebooks import Book

pytestmark = pytest.mark.kernel
LONG = pytest.mark.long("rare choices of a GPU in cells")

CHOOSES = """
import os
os.environ['CUDA_VISIBLE_DEVICES'] = {chosen!r}
from nls_jupyter import xp
x = xp.ones(1 << 20)
print(os.environ['CUDA_VISIBLE_DEVICES'])"""
X_BYTES = 8 << 20


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), "2x256MiB") as running:
        yield running


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    """A notebook on the second GPU; another one has the first."""
    alice, bob = bench.open(), bench.open()
    for book in (alice, bob):
        book.run("%gpu request 1.0 --limit 1.0")
        book.gpu("1")
    yield max((alice, bob), key=lambda book: int(gpu_of(bench, book)["index"]))
    alice.close()
    bob.close()


def gpu_of(bench: Bench, book: Book) -> dict[str, Any]:
    (own,) = book.entry(phase="running")["current"]
    gpus: list[dict[str, Any]] = bench.daemon.status()["gpus"]
    return next(gpu for gpu in gpus if gpu["uuid"] == own)


@pytest.mark.parametrize(("chosen", "told"), [("0", 0), ("0,1,2,3", 0), ("1", 1), ("GPU-of-somebody", 1)])
def test_whatever_gpu_a_cell_chooses_it_has_its_own(bench: Bench, book: Book, chosen: str, told: int) -> None:
    own = gpu_of(bench, book)
    assert own["index"] == 1
    outputs = book.gpu(CHOOSES.format(chosen=chosen))
    assert outputs.stdout == f"{own['uuid']}\n"
    wait_until(lambda: gpu_of(bench, book)["memory_used_bytes"] >= own["memory_used_bytes"] + X_BYTES)
    assert [gpu["unplaced_bytes"] for gpu in bench.daemon.status()["gpus"]] == [0, 0]
    assert outputs.stderr.count(f"counted from 0, and {chosen!r} names none of them") == told


@LONG
def test_a_cell_may_hide_its_gpu_and_a_later_one_have_it_again(bench: Bench, book: Book) -> None:
    shown = "from nls_jupyter import xp\nprint(xp.cuda.runtime.getDeviceCount())"
    hides = book.fails(f"%%gpu\nimport os\nos.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n{shown}")
    assert "no CUDA-capable device" in hides.evalue
    assert book.gpu(f"os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n{shown}").stdout == "1\n"


@LONG
def test_programs_of_a_cell_that_removes_the_variable_see_no_others_gpus(bench: Bench, book: Book) -> None:
    code = "import os, subprocess\ndel os.environ['CUDA_VISIBLE_DEVICES']\n!printenv CUDA_VISIBLE_DEVICES"
    assert book.gpu(code).stdout.split() == [gpu_of(bench, book)["uuid"]]


@LONG
def test_after_a_move_it_is_the_new_gpu_that_is_chosen(bench: Bench, book: Book) -> None:
    book.gpu("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'")
    book.run("%gpu suspend")
    shown = book.gpu("os.environ['CUDA_VISIBLE_DEVICES'] = '0'\nprint(os.environ['CUDA_VISIBLE_DEVICES'])").stdout
    assert shown == f"{gpu_of(bench, book)['uuid']}\n"


def test_a_program_that_takes_another_gpu_is_a_stranger_there_and_leaves_it_in_service(
    bench: Bench, book: Book
) -> None:
    """What a program sets for itself nobody can correct; the GPU was taken out of service, as if memory were stuck."""
    book.gpu("from nls_jupyter import xp\nx = xp.ones(1 << 20)")
    code = "from nls_jupyter import xp; x = xp.ones(1 << 20); print('up', flush=True); import time; time.sleep(600)"
    program = f"CUDA_VISIBLE_DEVICES=0 {sys.executable} -c {shlex.quote(code)}"
    book.gpu(
        f"import subprocess\nchild = subprocess.Popen({program!r}, shell=True, stdout=-1)\nchild.stdout.readline()"
    )

    def first() -> dict[str, Any]:
        return next(gpu for gpu in bench.daemon.status()["gpus"] if gpu["index"] == 0)

    wait_until(lambda: first()["unplaced_bytes"] >= X_BYTES)
    assert first()["healthy"]
    book.run("%gpu restart")
    wait_until(lambda: first()["unplaced_bytes"] == 0)
