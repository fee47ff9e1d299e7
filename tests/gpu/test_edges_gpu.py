"""What only a real Gpu has: graphs, allocators that users choose, streams, its own random numbers, cold caches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from saved_state_roundtrip import Roundtrip

pytestmark = pytest.mark.gpu

TESTS = Path(__file__).parent.parent
FOLLOWED = """
from nls_jupyter.gpu_process.allocators import Answer, Asking, Follower
follower = Follower(Asking(lambda asked: follower._asking.answer(asked["number"], Answer(False, "no room"))), print)
follower.install()
follower.follow(4 << 30)
import torch
"""
WITHIN = """
kept = []
try:
    while len(kept) < 20: kept.append(torch.zeros(1 << 29, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError: pass
print("kept", len(kept))
"""
CAPTURES = """
import threading
static, weights = torch.zeros(1024, 1024, device="cuda"), torch.ones(1024, 1024, device="cuda")
for _ in range(3): static @ weights
over = threading.Event()
def control():
    while not over.is_set():
        follower.follow(4 << 30)
        follower.trim()
thread = threading.Thread(target=control)
thread.start()
try:
    for _ in range(20):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph): result = static @ weights
        graph.replay()
    torch.cuda.synchronize()
finally:
    over.set()
    thread.join()
print("captured")
"""
FIRST_SAVE = """
import contextlib, time
import cupy
from nls_jupyter.saved_state import Saver
names = {"x": cupy.arange(1 << 23)}
with contextlib.closing(Saver()) as saver:
    saver.save(names, cell=None)
    began = time.monotonic()
    saver.save(names, cell=None)
    print(time.monotonic() - began)
"""


def says(code: str, **variables: str) -> str:
    """What a program of its own prints."""
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("configuration", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_the_allowance_holds_whichever_allocator_pytorch_uses(torch, configuration):
    """Each of PyTorch's allocators has a fraction: CUDACachingAllocator.cpp, CUDAMallocAsyncAllocator.cpp (2.13)."""
    told = says(FOLLOWED + WITHIN, PYTORCH_CUDA_ALLOC_CONF=configuration)
    assert 1 <= int(told.split()[-1]) <= 8


def test_graphs_are_captured_beside_trims(torch):
    assert says(FOLLOWED + CAPTURES).split()[-1] == "captured"


def test_a_cold_cache_of_kernels_leaves_a_save_far_from_its_watchdog(cupy, tmp_path):
    told = says(FIRST_SAVE, CUPY_CACHE_DIR=str(tmp_path), CUDA_CACHE_PATH=str(tmp_path))
    assert float(told) < 5


@pytest.mark.parametrize("pool", ["managed", "asynchronous", "none"])
def test_arrays_of_each_pool_come_back(cupy, pool):
    before = cupy.cuda.get_allocator()
    pools = {
        "managed": lambda: cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc,
        "asynchronous": lambda: cupy.cuda.MemoryAsyncPool().malloc,
        "none": lambda: None,
    }
    cupy.cuda.set_allocator(pools[pool]())
    try:
        array = cupy.arange(1 << 20)
        assert (Roundtrip({"a": array})["a"] == array).all()
    finally:
        cupy.cuda.set_allocator(before)


def test_work_on_another_stream_is_waited_for(torch):
    matrix = torch.full((4096, 4096), 1 / 4096, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(50):
            matrix = matrix @ matrix
    again = Roundtrip({"matrix": matrix})["matrix"]
    torch.cuda.synchronize()
    assert torch.equal(again, matrix)


def test_what_trainings_use_comes_back(torch):
    generator = torch.Generator("cuda").manual_seed(5)
    torch.randn(100, device="cuda", generator=generator)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(torch.ones(1, device="cuda"))
    sparse = torch.eye(10, device="cuda").to_sparse()
    result = Roundtrip({"generator": generator, "scaler": scaler, "sparse": sparse})
    assert not result.manifest.missing
    drawn = [torch.randn(5, device="cuda", generator=which) for which in (result["generator"], generator)]
    assert torch.equal(*drawn)
    assert result["scaler"].get_scale() == scaler.get_scale()
    assert torch.equal(result["sparse"].to_dense(), sparse.to_dense())


@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts, and advises
def test_a_compiled_network_computes_the_same_when_it_is_back(torch):
    net = torch.compile(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).cuda())
    x = torch.randn(8, 64, device="cuda")
    expected = net(x)
    result = Roundtrip({"net": net, "x": x})
    assert torch.allclose(result["net"](result["x"]), expected)
