"""Who fills what is allowed on a real Gpu is told so, stays, and can be saved; its neighbour's request comes first."""

from __future__ import annotations

import pytest

from nls_scheduler.drivers.nvml import NvmlDriver

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

# Takes blocks until the allocator says no, with the libraries' own contexts and workspaces there first.
CUPY = """
from nls_jupyter import xp
a = xp.ones((512, 512), dtype=xp.float32)
b = a @ a
kept = []
try:
    while True: kept.append(xp.zeros({block}, dtype=xp.uint8))
except MemoryError as error:
    print("[scheduler]" in str(error))
"""
TORCH = """
import torch
a = torch.ones(512, 512, device="cuda")
b = a @ a
c = torch.nn.Conv2d(3, 8, 3).cuda()(torch.ones(4, 3, 64, 64, device="cuda"))
kept = []
try:
    while True: kept.append(torch.zeros({block}, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    print(True)
"""
JAX = """
import jax, jax.numpy as jnp
x = (jnp.ones(10) + 1).block_until_ready()
print(float(x.sum()))
"""
# What a context takes is measured between cells: within the first one as much more is tolerated as it is counted as.
TOLERATED_BYTES = NvmlDriver.context_memory_bytes
# Long enough for the daemon to look several times: a process above its limit in two samples is stopped.
LOOKED_AT = "import time; time.sleep(4)"


def fill(node, code, limit):
    book = node.bench.open()
    book.run(f"%gpu request {limit} --limit {limit}")
    assert book.gpu(code.format(block=node.total_bytes // 64)).stdout.strip().endswith("True")
    pid = book.entry()["pid"]
    assert book.gpu(LOOKED_AT).stderr == ""
    assert book.entry()["pid"] == pid, "it was stopped"
    assert book.gpu("len(kept) > 3").result == "True"
    assert "Saved" in book.run("%gpu save").stdout + book.run("%gpu vars").stdout
    return node.used_bytes(book.name)


@pytest.mark.parametrize("limit", [0.5, 0.25])
def test_cupy_fills_its_allowance_and_stays(node, limit):
    assert fill(node, CUPY, limit) <= limit * node.total_bytes + TOLERATED_BYTES


def test_pytorch_fills_its_allowance_and_stays(idle, node):
    pytest.importorskip("torch")
    assert fill(node, TORCH, 0.5) <= 0.5 * node.total_bytes + TOLERATED_BYTES


def test_jax_stays_within_its_limit_and_is_not_stopped(idle, node):
    pytest.importorskip("jax")
    book = node.bench.open()
    book.run("%gpu request 0.5 --limit 0.5")
    assert book.gpu(JAX).stdout.strip() == "20.0"
    pid = book.entry()["pid"]
    book.gpu(LOOKED_AT)
    assert book.entry()["pid"] == pid
    assert node.used_bytes(book.name) <= node.total_bytes // 2
    assert book.gpu("float(x.sum())").result == "20.0"


def test_a_neighbour_gets_its_request_from_who_bursts(node):
    burst, neighbour = node.bench.open(), node.bench.open()
    burst.run("%gpu request 0.3 --limit 1.0")
    take = "from nls_jupyter import xp\nheld = xp.ones(int({part} * {total}) // 4, dtype=xp.float32)\nfloat(held[-1])"
    assert burst.gpu(take.format(part=0.7, total=node.total_bytes)).result == "1.0"
    burst.run("%gpu save")
    neighbour.run("%gpu request 0.5 --limit 1.0")
    assert neighbour.gpu(take.format(part=0.45, total=node.total_bytes)).result == "1.0"
    assert burst.gpu("float(held.min()), float(held.max())").result == "(1.0, 1.0)"
