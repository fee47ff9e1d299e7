"""What a CUDA context and a library's own memory take of a GPU, step by step, beside what its allocator holds.

    python benchmarks/gpu_contexts.py --library torch      # or cupy, jax, driver; none tries it out without a GPU

The daemon counts a context as `--counted-mib` until it knows better. NVML is read here, the steps run in a child.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from typing import Any

from machine import machine, report, require_gpu

from nls_scheduler.drivers.nvml import NvmlDriver

MIB = 1 << 20
# `step` tells what the allocator holds and waits until NVML was read.
HEAD = """
import json, sys, time
began = time.perf_counter()
def step(name, held_bytes=0):
    global began
    print(json.dumps({"step": name, "seconds": round(time.perf_counter() - began, 4), "held": held_bytes}), flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
"""
DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
step("cuInit")
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
step("context")
"""
CUPY = """
import cupy
step("import")
held = lambda: cupy.cuda.runtime.deviceSynchronize() or cupy.get_default_memory_pool().total_bytes()
a = cupy.zeros(1 << 20)
step("array", held())
float((a * 2 + 1).sum())
step("kernels", held())
m = cupy.ones((2048, 2048), "f4")
m = m @ m
step("cublas", held())
cupy.random.random(1 << 20)
step("curand", held())
cupy.fft.fft(a)
step("cufft", held())
cupy.linalg.svd(m[:256, :256])
step("cusolver", held())
"""
TORCH = """
import torch
from torch import nn
step("import")
held = lambda: torch.cuda.synchronize() or torch.cuda.memory_reserved()
torch.zeros(1 << 20, device="cuda")
step("tensor", held())
m = torch.ones(2048, 2048, device="cuda")
m = m @ m
step("cublas", held())
m.bfloat16() @ m.bfloat16()
step("cublas bf16", held())
net = nn.Conv2d(3, 64, 7).cuda()
y = net(torch.ones(16, 3, 224, 224, device="cuda"))
step("cudnn", held())
y.sum().backward()
torch.optim.AdamW(net.parameters()).step()
step("backward, AdamW", held())
nn.functional.scaled_dot_product_attention(*[torch.ones(8, 8, 512, 64, device="cuda", dtype=torch.bfloat16)] * 3)
step("attention", held())
torch.linalg.svd(torch.rand(128, 128, device="cuda"))
step("cusolver", held())
"""
JAX = """
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax, jax.numpy as jnp
step("import")
held = lambda: jax.devices()[0].memory_stats()["bytes_reserved"] or jax.devices()[0].memory_stats()["bytes_in_use"]
(jnp.ones(10) + 1).block_until_ready()
step("array", held())
m = jnp.ones((2048, 2048))
(m @ m).block_until_ready()
step("cublas", held())
"""
PROGRAMS = {"driver": DRIVER, "cupy": CUPY, "torch": TORCH, "jax": JAX, "none": 'step("nothing")\n'}


def shown_bytes(driver: NvmlDriver, pid: int) -> int | None:
    """What NVML shows of a process, on all GPUs; `None` where it does not tell."""
    found = [
        used
        for sample in driver.sample().values()
        for identity, used in (sample.processes or {}).items()
        if identity.pid == pid
    ]
    return None if None in found else sum(used or 0 for used in found)


def measure(library: str, counted_mib: int) -> dict[str, Any]:
    steps = []
    with contextlib.closing(NvmlDriver()) as driver:
        driver.discover()
        command = [sys.executable, "-c", HEAD + PROGRAMS[library]]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            for line in child.stdout:
                told = json.loads(line)
                shown, held = shown_bytes(driver, child.pid), told.pop("held")
                beside = None if shown is None else round((shown - held) / MIB)
                steps.append({**told, "allocator_mib": round(held / MIB), "beside_allocator_mib": beside})
                child.stdin.write("\n")
                child.stdin.flush()
        if child.returncode:
            raise RuntimeError(f"{library} ended with {child.returncode} after {steps}")
    most = max((step["beside_allocator_mib"] or 0 for step in steps), default=0)
    ratio = round(most / counted_mib, 2)
    return {"steps": steps, "most_beside_allocator_mib": most, "counted_mib": counted_mib, "most_over_counted": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=PROGRAMS, default="torch")
    parser.add_argument("--counted-mib", type=int, default=NvmlDriver.context_memory_bytes // MIB)
    options = parser.parse_args()
    if options.library != "none":
        require_gpu(*({options.library} - {"driver"}))
    report(f"gpu_contexts_{options.library}", measure(options.library, options.counted_mib), machine())


if __name__ == "__main__":
    main()
