"""A cell that computes on a real Gpu stands still while a command has that, and goes on where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conftest import SIMULATED
from notebooks import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

DEADLINES = (
    *("--set", "freeze_cells=true", "--set", "reclaim_deadline_s=20", "--set", "freeze_timeout_s=30"),
    *("--set", "interrupt_grace_s=1", "--set", "stop_grace_s=1"),
)
# Whoever holds so much leaves for a command that is owed nearly all, though what both are owed fits.
HELD_MIB = 300 if SIMULATED else 6 << 10
ARRAYS = f"""
from nls_jupyter import xp
words = xp.arange({HELD_MIB} << 17, dtype=xp.uint64)
words *= xp.uint64(0x9E3779B97F4A7C15)
def computed(): return int(words.sum())
"""
TENSORS = f"""
import torch
words = torch.arange({HELD_MIB} << 17, dtype=torch.int64, device="cuda")
words *= 0x1E3779B97F4A7C15
a = torch.full((512, 512), 2.0, device="cuda")
b = a @ a
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): b = a @ a
def computed():
    b.zero_()
    graph.replay()
    return int(words.sum()), b.sum().item()
"""
CELL = """%%gpu
{begin}
import os, time
expected, rounds = computed(), 0
print("up", os.getpid(), flush=True)
while not os.path.exists({go!r}):
    assert computed() == expected
    rounds += 1
    time.sleep(0.01)
print("over", os.getpid(), computed() == expected, rounds > 1, flush=True)"""


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    where = ("1x1GiB",) if SIMULATED else (None, "--gpus", request.getfixturevalue("idle"))
    with Bench(tmp_path_factory.mktemp("bench"), *where, *DEADLINES) as running:
        yield running


@pytest.mark.parametrize(("library", "begin"), [("cupy", ARRAYS), ("torch", TENSORS)], ids=["cupy", "torch"])
def test_a_cell_goes_on_in_its_process_after_it_stood_still(library, begin, bench, tmp_path):
    if not SIMULATED:
        pytest.importorskip(library)
    elif library == "torch":
        pytest.skip("its memory is the host's here")
    go, leave = tmp_path / "go", tmp_path / "leave"
    book = bench.open()
    book.run("%gpu request 0.05 --limit 1.0")
    cell = book.start(CELL.format(begin=begin, go=str(go)))
    cell.until(lambda shown: "up" in shown.stdout)
    wait = f"until test -e {leave}; do sleep 0.02; done"
    with bench.daemon.start_nls("run", "--name", "training", "--request", "0.94", "--", "sh", "-c", wait) as training:
        try:
            standing = book.entry(phase="suspended")
            bench.daemon.wait_for("training", 60.0, phase="running")
            assert standing["frozen"]["for"] == "training"
            assert standing["frozen"]["bytes"] >= HELD_MIB << 20
            assert not cell.over
        finally:
            leave.touch()
        assert training.wait(30) == 0
    book.entry(phase="running", frozen=None)
    go.touch()
    up, over = cell.finish().stdout.splitlines()
    assert over == f"over {up.split()[1]} True True"
