"""A running cell of a real notebook stands still while a command has its GPU, and goes on as if nothing had been."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.drivers.checkpoints import CheckpointFailed, State
from nls_scheduler.drivers.simulated_checkpoints import FAULT_FILE, SimulatedCheckpoints
from nls_scheduler.processes.proc import look_up
from notebooks import Bench, Book, RunningCell
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = pytest.mark.long("cells of real notebooks that stand still: one is here")
DEADLINES = (
    *("--set", "freeze_cells=true", "--set", "reclaim_deadline_s=12", "--set", "interrupt_grace_s=5"),
    *("--set", "stop_grace_s=1", "--set", "freeze_timeout_s=20"),
)
CELL = """%%gpu
import os, time
from nls_jupyter import xp
held = xp.full(40 << 20, 7, dtype=xp.float32)
count = 0
print('up', os.getpid(), flush=True)
while not os.path.exists({go!r}):
    count += 1
    time.sleep(0.005)
print('over', count > 1, os.getpid(), float(held[-1]), flush=True)"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), "1x256MiB", *DEADLINES) as running:
        yield running


@pytest.fixture
def book(bench: Bench) -> Iterator[Book]:
    opened = bench.open()
    yield opened
    opened.close()
    wait_until(lambda: not bench.daemon.status()["workloads"])


def computes(book: Book, cell: RunningCell) -> None:
    """It holds what it holds, and the daemon has seen it."""
    cell.until(lambda shown: "up" in shown.stdout)
    book.entry(memory_used_bytes=176 << 20)


@pytest.mark.long("cells of real notebooks that stand still")
def test_a_cell_stands_still_for_a_command_and_goes_on_where_it_was(bench: Bench, book: Book, tmp_path: Path) -> None:
    go, leave = tmp_path / "go", tmp_path / "leave"
    cell = book.start(CELL.format(go=str(go)))
    computes(book, cell)
    wait = f"until test -e {leave}; do sleep 0.02; done"
    with bench.daemon.start_nls("run", "--name", "training-7", "--request", "0.5", "--", "sh", "-c", wait) as training:
        standing = book.entry(phase="suspended")
        bench.daemon.wait_for("training-7", 30.0, phase="running")
        assert standing["frozen"]["for"] == "training-7"
        assert standing["frozen"]["bytes"] >= 160 << 20
        assert not cell.over
        cell.until(lambda shown: "stands still since" in "".join(shown.displays))
        assert "for training-7" in cell.outputs.displays[-1]
        stood = bench.daemon.nls("status").stdout
        assert re.search(r"suspended \(its cell stands still since .*, for training-7\)", stood), stood
        explained = bench.daemon.nls("explain", book.name).stdout
        assert "its running cell stands still for training-7, in host memory, until GPU 0 takes it back" in explained
        leave.touch()
        assert training.wait(30) == 0
    book.entry(phase="running", frozen=None)
    go.touch()
    outputs = cell.finish()
    up, over = outputs.stdout.splitlines()
    assert over == f"over True {up.split()[1]} 7.0"
    assert "stands still" not in str(outputs.document)
    assert book.gpu("float(held[1])").result == "7.0"
    log = book.run("%gpu log").stdout
    assert "The running cell stands still: training-7 needs GPU 0." in log
    assert re.search(r"The cell goes on after \d+ s\.", log)
    told = bench.daemon.nls("history").stdout
    assert re.search(r"frozen.*\n(?s:.*)thawed", told), told


@LONG
@pytest.mark.parametrize("step", ["lock", "checkpoint"])
def test_where_the_driver_fails_the_cell_is_interrupted_and_the_command_runs(
    step: str, bench: Bench, book: Book, tmp_path: Path
) -> None:
    cell = book.start(CELL.format(go=str(tmp_path / "never")))
    computes(book, cell)
    (simulation,) = {file.parent for file in bench.daemon.directory.rglob("simulation.json")}
    fault = simulation / FAULT_FILE
    fault.write_text(step)
    try:
        done = bench.daemon.nls("run", "--name", "training-7", "--request", "0.5", "--", "true", timeout_s=60.0)
    finally:
        fault.unlink()
    assert done.returncode == 0
    assert "GpuReclaimed" in str(cell.fail())
    assert f"could not be made to stand still: the simulated driver was told to fail at {step}" in (
        book.run("%gpu log").stdout
    )


@LONG
def test_a_process_that_says_that_the_driver_cannot_freeze_it_is_not_touched(
    bench: Bench, book: Book, tmp_path: Path
) -> None:
    joined = "import sys, types; sys.modules['torch.distributed'] = types.SimpleNamespace("
    joined += "is_available=lambda: True, is_initialized=lambda: True, get_backend=lambda: 'nccl')"
    book.gpu(joined)
    cell = book.start(CELL.format(go=str(tmp_path / "never")))
    computes(book, cell)
    done = bench.daemon.nls("run", "--name", "training-7", "--request", "0.5", "--", "true", timeout_s=60.0)
    assert done.returncode == 0
    assert "GpuReclaimed" in str(cell.fail())
    assert "could not be made to stand still: it has joined others by NCCL." in book.run("%gpu log").stdout


@LONG
def test_a_cell_stands_still_through_a_daemon_s_death(bench: Bench, book: Book, tmp_path: Path) -> None:
    go, leave = tmp_path / "go", tmp_path / "leave"
    cell = book.start(CELL.format(go=str(go)))
    computes(book, cell)
    wait = f"until test -e {leave}; do sleep 0.02; done"
    with bench.daemon.start_nls("run", "--name", "training-7", "--request", "0.5", "--", "sh", "-c", wait) as training:
        book.entry(phase="suspended")
        bench.daemon.kill()
        bench.daemon.start()
        assert book.entry(phase="suspended")["frozen"]["for"] == "training-7"
        leave.touch()
        assert training.wait(30) == 0
    book.entry(phase="running", frozen=None)
    go.touch()
    assert "over True" in cell.finish().stdout


@LONG
def test_a_process_that_a_daemon_without_its_journal_takes_up_can_be_frozen_as_before(
    bench: Bench, book: Book, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    cell = book.start(CELL.format(go=str(go)))
    computes(book, cell)
    bench.daemon.kill()
    (bench.daemon.directory / "state" / "journal.db").write_bytes(b"not a database at all" * 1000)
    bench.daemon.start()
    book.entry(phase="running", memory_used_bytes=176 << 20)
    done = bench.daemon.nls("run", "--name", "training-7", "--request", "0.5", "--", "true", timeout_s=60.0)
    assert done.returncode == 0
    book.entry(phase="running", frozen=None)
    go.touch()
    assert "over True" in cell.finish().stdout
    assert "The running cell stands still: training-7 needs GPU 0." in book.run("%gpu log").stdout


@LONG
def test_a_kernel_that_is_killed_while_its_process_is_locked_has_it_ended_when_that_is_let_go(
    bench: Bench, tmp_path: Path
) -> None:
    book = bench.open()
    kernel = book.pid()
    computes(book, book.start(CELL.format(go=str(tmp_path / "never"))))
    pid = book.entry()["pid"]
    record = look_up(pid)
    assert record is not None
    (simulation,) = {file.parent for file in bench.daemon.directory.rglob("simulation.json")}
    driver, fault = SimulatedCheckpoints(simulation), simulation / FAULT_FILE
    fault.write_text("late")
    try:
        with bench.daemon.start_nls("run", "--name", "training-7", "--request", "0.5", "--", "true") as training:
            wait_until(lambda: driver.state(record.id) is State.LOCKED, 60.0)
            os.kill(kernel, signal.SIGKILL)
            seen = set()
            with suppress(CheckpointFailed):  # it has ended
                while True:
                    seen.add(driver.state(record.id))
            assert State.CHECKPOINTED in seen, "it was killed while it was locked"
            assert training.wait(30) == 0
    finally:
        fault.unlink()


@LONG
def test_a_kernel_that_ends_while_its_cell_stands_still_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    book, leave = bench.open(), tmp_path / "leave"
    cell = book.start(CELL.format(go=str(tmp_path / "never")))
    computes(book, cell)
    wait = f"until test -e {leave}; do sleep 0.02; done"
    with bench.daemon.start_nls("run", "--name", "training-7", "--request", "0.5", "--", "sh", "-c", wait) as training:
        book.entry(phase="suspended")
        book.close()
        wait_until(lambda: bench.daemon.workload(book.name) is None)
        leave.touch()
        assert training.wait(30) == 0
