"""`%%gpu -i` and `-o` in a real notebook with a simulated GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from left_out import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from notebooks import Bench, Book


@pytest.fixture(scope="module")
def book(bench: Bench) -> Iterator[Book]:
    opened = bench.open()
    opened.run("import numpy as np\na, b = np.arange(100_000.0), {'nested': [1, 2]}")
    yield opened
    opened.close()


WRITTEN = ("-i a,b", "-i a -i b", "-i 'a, b'", "--input a,b,a")


@pytest.mark.parametrize("options", thinned(WRITTEN, 4, "ways to write an option"))
def test_variables_are_there_before_the_cell(book: Book, options: str) -> None:
    book.gpu("%reset -f")
    assert book.run(f"%%gpu {options}\nfloat(a.sum()), b").result == "(4999950000.0, {'nested': [1, 2]})"


def test_variables_come_back_after_the_cell_as_copies(book: Book) -> None:
    outputs = book.run("%%gpu -i a,b -o total,b -o c\ntotal = a.sum()\nb['more'] = 3\nc = [a[:2]]\n'shown'")
    assert outputs.result == "'shown'"
    assert (
        book.run("float(total), b, c[0].tolist()").result == "(4999950000.0, {'nested': [1, 2], 'more': 3}, [0.0, 1.0])"
    )
    book.gpu("b.clear()")
    assert book.run("'more' in b").result == "True"


def test_what_was_on_the_gpu_comes_back_as_numpy_and_no_gpu_library_with_it(book: Book) -> None:
    book.run(
        "%%gpu -i a -o doubled,held\nfrom nls_jupyter import xp\ndoubled = 2 * xp.asarray(a)\nheld = {'d': doubled}"
    )
    told = book.run(
        "import sys\ntype(doubled), float(doubled[-1]), held['d'] is doubled, 'nls_jupyter.xp' in sys.modules"
    )
    assert told.result == "(numpy.ndarray, 199998.0, True, False)"


@pytest.mark.long("variables that go between processes: tensors take PyTorch in two of them")
def test_tensors_stay_tensors_only_where_the_kernel_uses_torch(bench: Bench) -> None:
    book = bench.open()
    book.run("%%gpu -o t\nimport torch\nt = torch.arange(3)")
    assert book.run("import sys\ntype(t).__name__, 'torch' in sys.modules").result == "('ndarray', False)"
    book.run("import torch")
    book.run("%%gpu -o t\npass")
    assert book.run("type(t).__name__, t.tolist()").result == "('Tensor', [0, 1, 2])"
    assert book.run("%%gpu -i t\ntype(t).__name__").result == "'Tensor'"
    book.close()


def test_what_a_cell_defines_can_come_along(book: Book) -> None:
    book.run(
        "class Mine:\n    def __init__(self, x): self.x = x\ndef twice(mine): return Mine(2 * mine.x)\nmine = Mine(4)"
    )
    book.run("%%gpu -i mine,twice -o more\nmore = twice(mine)")
    assert book.run("more.x, type(more).__name__").result == "(8, 'Mine')"


@pytest.mark.parametrize(
    ("options", "ename", "sentence"),
    [
        ("-i a.b", "GpuUsageError", "-i takes names of variables, as in -i a,b; 'a.b' is none."),
        ("-i a,,b", "GpuUsageError", "'' is none"),
        ("-o class", "GpuUsageError", "-o takes names of variables, as in -o a,b; 'class' is none."),
        ("-i", "GpuUsageError", "expected one argument"),
        (
            "-i a,nosuch",
            "GpuTransferFailed",
            "there is no variable nosuch in the notebook's kernel. The cell did not run.",
        ),
        ("-i a,gen", "GpuTransferFailed", "gen (generator) cannot be copied: TypeError: cannot pickle"),
        ("-i a,brittle", "GpuTransferFailed", "cannot be rebuilt: ValueError: no. The cell did not run."),
    ],
)
def test_inputs_that_cannot_go_are_named_and_none_goes(book: Book, options: str, ename: str, sentence: str) -> None:
    book.run(
        "gen = (i for i in 'ab')\ndef no(): raise ValueError('no')\nclass Brittle:\n"
        "    def __reduce__(self): return no, ()\nbrittle = Brittle()"
    )
    book.gpu("%reset -f")
    failed = book.fails(f"%%gpu {options}\nran = True")
    assert failed.ename == ename
    assert sentence in failed.evalue
    assert book.gpu("'a' in globals(), 'ran' in globals()").result == "(False, False)"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nosuch", "there is no variable nosuch in the GPU process. The cell ran, and nothing was copied back."),
        ("gen", "gen (generator) cannot be copied: TypeError: cannot pickle 'generator' object."),
        ("brittle", "cannot be rebuilt: ValueError: no. The cell ran, and nothing was copied back."),
    ],
)
def test_outputs_that_cannot_come_are_named_and_none_comes(book: Book, name: str, sentence: str) -> None:
    book.run("fine = 'as before'")
    failed = book.fails(
        f"%%gpu -o fine,{name}\nfine, gen = 1, (i for i in 'ab')\ndef no(): raise ValueError('no')\nclass Brittle:\n"
        "    def __reduce__(self): return no, ()\nbrittle = Brittle()\nprint('ran')\n'the result'"
    )
    assert failed.ename == "GpuTransferFailed"
    assert sentence in failed.evalue
    assert (failed.outputs.stdout, failed.outputs.result) == ("ran\n", "'the result'")
    assert book.run("fine").result == "'as before'"


def test_a_cell_that_fails_brings_nothing_back(book: Book) -> None:
    book.run("fine = 'as before'")
    assert book.fails("%%gpu -o fine\nfine = 1\n1/0").ename == "ZeroDivisionError"
    assert book.run("fine").result == "'as before'"


def test_ctrl_c_ends_a_copy(book: Book, tmp_path: Path) -> None:
    book.run(
        "import pathlib, time\n"
        f"def slow():\n    pathlib.Path({str(tmp_path)!r}, 'up').touch()\n    time.sleep(60)\n"
        "class Slow:\n    def __reduce__(self): return slow, ()\nslowly = Slow()"
    )
    book.gpu("%reset -f")
    cell = book.start("%%gpu -i slowly\nran = True")
    cell.until(lambda _: (tmp_path / "up").exists())
    book.interrupt()
    assert cell.fail().ename == "KeyboardInterrupt"
    assert book.gpu("'ran' in globals()").result == "False"


def test_copies_leave_no_descriptor_behind(book: Book) -> None:
    for _ in range(3):
        book.run("%%gpu -i a -o a\npass")
        book.fails("%%gpu -i a -o nosuch\npass")
    count = (
        "import os, pathlib\n"
        "links = [p for p in pathlib.Path('/proc/self/fd').iterdir() if p.is_symlink()]\n"
        "sum('nls-variables' in os.readlink(link) for link in links if os.path.lexists(link))"
    )
    assert book.run(count).result == "0"
    assert book.gpu(count).result == "0"
