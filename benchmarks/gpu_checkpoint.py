"""The driver's own suspend of a process: what lock, checkpoint, restore and unlock take, and what is free meanwhile.

    python benchmarks/gpu_checkpoint.py --library cupy --gib 10 --masked      # or torch

Through libcuda itself (r570 and newer), so that no version of a binding matters. `--masked`: the process sees its GPU
by UUID, as each GPU process of ours does. Run it last: a process that cannot be unlocked again stays in the driver. A
child ends by itself after a restore, as killing one then has hung (NVIDIA/cuda-checkpoint, issue 53).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import subprocess
import sys
import time
from typing import Any

from machine import machine, report, require_gpu

from nls_scheduler.drivers.nvml import NvmlDriver

GIB = 1 << 30
LOCK_TIMEOUT_MS = 10_000
END_TIMEOUT_S = 20.0
ROUNDS = 2
CHILDREN = {
    "cupy": """
import sys, cupy
words = cupy.arange({words}, dtype=cupy.uint64)
words *= cupy.uint64(0x9E3779B97F4A7C15)
total = int(words.sum())
print("ready", flush=True)
for _ in sys.stdin: print(int(words.sum()) == total, flush=True)
""",
    "torch": """
import sys, torch
words = torch.arange({words}, dtype=torch.int64, device="cuda") * 0x1E3779B97F4A7C15
a = torch.ones(512, 512, device="cuda")
b = a @ a  # cuBLAS does not begin in a capture
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): b = a @ a
total = int(words.sum())
print("ready", flush=True)
for _ in sys.stdin:
    graph.replay()
    torch.cuda.synchronize()
    print(int(words.sum()) == total and bool((b == 512).all()), flush=True)
""",
}


class LockArguments(ctypes.Structure):
    """CUcheckpointLockArgs of cuda.h: 64 bytes."""

    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


class Checkpoints:
    """The four calls, each with its time. Raises RuntimeError with the driver's own name of an error."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)

    def do(self, action: str, pid: int) -> float:
        """Seconds of one of `Lock`, `Checkpoint`, `Restore`, `Unlock`."""
        arguments = ctypes.byref(LockArguments(timeout_ms=LOCK_TIMEOUT_MS)) if action == "Lock" else None
        began = time.perf_counter()
        self._call(f"cuCheckpointProcess{action}", pid, arguments)
        return time.perf_counter() - began

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            told = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(told))
            raise RuntimeError(f"{name}: {code} {(told.value or b'unknown').decode()}")


class Child:
    """A process with memory on the GPU."""

    def __init__(self, code: str, environment: dict[str, str]) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **pipes)
        if self._line() != "ready":
            raise RuntimeError("the child did not come up")

    def same(self) -> bool:
        """Whether it still computes what it computed before."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._line() == "True"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        """By itself, if it can."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


def one_round(driver: NvmlDriver, uuid: str, checkpoints: Checkpoints, child: Child, gib: float) -> dict[str, Any]:
    """Off the GPU and back."""

    def used() -> int:
        return driver.sample()[uuid].memory_used_bytes or 0

    held = used()
    seconds = {action: checkpoints.do(action, child.process.pid) for action in ("Lock", "Checkpoint")}
    freed = held - used()
    listed = any(identity.pid == child.process.pid for identity in driver.sample()[uuid].processes or ())
    seconds |= {action: checkpoints.do(action, child.process.pid) for action in ("Restore", "Unlock")}
    return {
        **{f"{action.lower()}_s": round(taken, 3) for action, taken in seconds.items()},
        "checkpoint_gib_s": round(gib / seconds["Checkpoint"], 2),
        "restore_gib_s": round(gib / seconds["Restore"], 2),
        "freed_gib": round(freed / GIB, 2),
        "listed_meanwhile": listed,
        "same": child.same(),
    }


def measure(library: str, gib: float, *, masked: bool) -> dict[str, Any]:
    with contextlib.closing(NvmlDriver()) as driver:
        uuid = driver.discover()[0].uuid
        checkpoints = Checkpoints()
        code = CHILDREN[library].format(words=int(gib * GIB) // 8)
        child = Child(code, {**os.environ, **(driver.environment([uuid]) if masked else {})})
        try:
            rounds = [one_round(driver, uuid, checkpoints, child, gib) for _ in range(ROUNDS)]
        finally:
            child.end()
    if not all(found["same"] for found in rounds):
        raise RuntimeError(f"it does not compute the same any more: {rounds}")
    return {"rounds": rounds, "exit_code": child.process.returncode}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=CHILDREN, default="cupy")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--masked", action="store_true")
    options = parser.parse_args()
    require_gpu(options.library)
    figures = measure(options.library, options.gib, masked=options.masked)
    report(f"gpu_checkpoint_{options.library}_{options.gib:g}", figures, machine())


if __name__ == "__main__":
    main()
