"""A real kernel is killed in the worst moment: nothing of its GPU process is left, whatever that was doing."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from test_standby import standby_pid

from left_out import thinned
from leftovers import living, wait_until_none
from nls_scheduler.processes.guardian import descendants
from notebooks import Bench
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from notebooks import Book

UP = "open({up!r}, 'w').close()\n"
SLOW = """
import os, time
class Slow:
    def __reduce__(self):
        if os.path.exists({up!r} + '.now'):
            open({up!r}, 'w').close(); time.sleep(600)
        return Awaited, ()
class Awaited:
    def __init__(self):
        open({up!r}, 'w').close(); time.sleep(600)
slow = Slow()
"""
CELLS = {
    "in a Python loop": UP + "while True: pass",
    "in a system call": UP + "import time; time.sleep(600)",
    "while it holds the GIL": UP + "import ctypes; ctypes.PyDLL(None).sleep(600)",
    "while it is stopped": UP + "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "deaf to signals": (
        "import signal, time\n"
        "for number in signal.valid_signals() - {{9, 19, 32, 33}}: signal.signal(number, signal.SIG_IGN)\n"
        + UP
        + "time.sleep(600)"
    ),
    "with a grandchild in another session": (
        "import subprocess, time\nsubprocess.Popen(['setsid', 'sh', '-c', 'sleep 600 & kill -STOP $$'])\n"
        + UP
        + "time.sleep(600)"
    ),
    "with workers of a DataLoader": (
        "import time\nfrom torch.utils.data import DataLoader\n"
        "class Slowly:\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i):\n        time.sleep(0.01 if i < 2 else 600)\n        return i\n"
        "for batch in DataLoader(Slowly(), num_workers=2, batch_size=1):\n    " + UP
    ),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("bench")
    # A server fails to end a kernel while it is in the middle of starting it again.
    (directory / "config").mkdir()
    (directory / "config" / "jupyter_server_config.json").write_text('{"KernelManager": {"autorestart": false}}')
    with Bench(directory, "1x256MiB") as running:
        yield running


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    opened = bench.open()
    yield opened
    opened.close()
    wait_until(lambda: bench.daemon.workload(opened.name) is None)


@pytest.fixture
def up(tmp_path: Path) -> Path:
    """Made by the cell at the worst moment."""
    return tmp_path / "up"


def family_of(book: Book, kernel: int) -> dict[int, int]:
    """The kernel's descendants, its GPU process among them."""
    family = descendants(kernel)
    entry = book.entry()
    assert entry["pid"] is None or entry["pid"] in family
    return family


def nothing_is_left_of(family: dict[int, int], kernel: int) -> None:
    assert family
    os.kill(kernel, signal.SIGKILL)
    wait_until_none("processes", lambda: living(family))


@pytest.mark.parametrize("code", thinned(CELLS.values(), 6, "cells whose kernel is killed"), ids=CELLS)
def test_nothing_is_left_of_a_gpu_process_whose_kernel_is_killed(book: Book, up: Path, code: str) -> None:
    kernel = book.pid()
    book.start("%%gpu\n" + code.format(up=str(up))).until(lambda _: up.exists())
    nothing_is_left_of(family_of(book, kernel), kernel)


def test_nothing_is_left_of_one_that_was_idle(book: Book) -> None:
    kernel = book.pid()
    book.gpu("1")
    nothing_is_left_of(family_of(book, kernel), kernel)


@pytest.mark.long("GPU processes whose kernel is killed while they do something")
def test_nothing_is_left_of_one_that_was_saving(book: Book, up: Path) -> None:
    kernel = book.pid()
    up.with_name("up.now").touch()
    book.gpu(SLOW.format(up=str(up)))
    wait_until(up.exists)
    nothing_is_left_of(family_of(book, kernel), kernel)


@pytest.mark.long("GPU processes whose kernel is killed while they do something")
def test_nothing_is_left_of_one_that_was_restoring(book: Book, up: Path) -> None:
    kernel = book.pid()
    book.gpu(SLOW.format(up=str(up)))
    book.run("%gpu suspend")
    assert not up.exists()
    book.run("%gpu resume")
    wait_until(up.exists)
    nothing_is_left_of(family_of(book, kernel), kernel)


@pytest.mark.long("a process that stands by: that it is the next one is here")
@pytest.mark.parametrize("stopped", [False, True])
def test_nothing_is_left_of_one_that_stood_by(book: Book, stopped: bool) -> None:
    book.run("import os; os.environ['NLS_STANDBY_MEMORY'] = '0.5'")
    kernel = book.pid()
    book.gpu("import numpy")
    standby = standby_pid(book)
    family = family_of(book, kernel)
    assert standby in family
    if stopped:
        os.kill(standby, signal.SIGSTOP)
    nothing_is_left_of(family, kernel)
