"""What tests rely on of libcuda, each in programs of its own: the stub passes it here, the real one in tests/gpu."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contract.driver_contract import Holder
from nls_jupyter.gpu_process.freezable import MANAGED

SCRIPT_VARIABLE = "NLS_CUDA_STUB_SCRIPT"
NOT_INITIALIZED, OUT_OF_MEMORY, ILLEGAL_STATE = 3, 2, 401
RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2
BEGIN = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, number, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
free, total, memory = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
def name(code):
    told = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(told))
    return told.value.decode()
def begin():
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
def left():
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value
def allocate(size): return cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size))
"""


def built(directory: Path) -> Path:
    """The stub, compiled there. Skips the test without a compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        assert os.environ.get("CI") != "true", "gcc is needed to build the CUDA stub"
        pytest.skip("there is no gcc to build the CUDA stub")
    path = directory / "libcuda.so.1"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libcuda.so.1"]
    source = Path(__file__).with_name("cuda_stub.c")
    subprocess.run([compiler, *flags, "-o", str(path), str(source)], check=True)
    return path


class CudaContract:
    """Inherit, and provide the fixture `environment`, in which programs find the library."""

    @pytest.fixture
    def environment(self) -> dict[str, str]:
        raise NotImplementedError

    def says(self, environment, code):
        """What a program prints after `BEGIN`."""
        whole = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", BEGIN + code]
        done = subprocess.run(command, env=whole, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def test_before_its_initialization_it_says_so_and_is_not_initialized_by_that(self, environment):
        ask = "print(cuda.cuDeviceGetCount(ctypes.byref(number)))\n"
        assert self.says(environment, ask + ask + "begin()\n" + ask) == [f"{NOT_INITIALIZED}"] * 2 + ["0"]

    def test_a_process_is_known_to_have_touched_its_gpu_from_the_initialization_on(self, environment):
        """As whoever stands by is asked: `cuda_touched` must not initialize what it asks."""
        ask = "print(cuda_touched() is not None)\n"
        code = f"from nls_jupyter.gpu_process.warm_imports import cuda_touched\n{ask}{ask}begin()\n{ask}"
        assert self.says(environment, code) == ["False", "False", "True"]

    def test_memory_is_less_by_what_is_allocated_until_it_is_given_back(self, environment):
        code = "begin()\nbefore = left()\nassert allocate(64 << 20) == 0\nprint(before - left() >= 64 << 20)\n"
        code += "assert cuda.cuMemFree_v2(memory) == 0\nprint(left() == before)"
        assert self.says(environment, code) == ["True", "True"]

    def test_more_than_there_is_is_refused_and_the_process_goes_on(self, environment):
        code = "begin()\ncode = allocate(left() + (1 << 40))\nprint(code, name(code), cuda.cuCtxSynchronize())"
        assert self.says(environment, code) == [f"{OUT_OF_MEMORY}", "CUDA_ERROR_OUT_OF_MEMORY", "0"]

    def test_managed_memory_is_known_in_each_thread_and_that_of_the_gpu_alone_is_none(self, environment):
        code = """
import threading
from nls_jupyter.gpu_process.freezable import Freezable
def ask(): print(str(Freezable().why_not()).replace(" ", "_"))
def asked():
    ask()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
ask()
begin()
assert allocate(1 << 20) == 0
asked()
assert cuda.cuMemAllocManaged(ctypes.byref(memory), ctypes.c_size_t(4 << 20), 1) == 0
asked()
"""
        assert self.says(environment, code) == ["None"] * 3 + [MANAGED.replace(" ", "_")] * 2

    def test_a_process_is_locked_checkpointed_restored_and_unlocked_in_this_order_only(self, environment):
        code = BEGIN + "begin()\nassert allocate(64 << 20) == 0\nprint('ready', flush=True)\nsys.stdin.readline()"
        other = Holder(code, environment)
        asks = f"""
assert cuda.cuInit(0) == 0
def do(action): return getattr(cuda, "cuCheckpointProcess" + action)({other.process.pid}, None)
def state():
    assert cuda.cuCheckpointProcessGetState({other.process.pid}, ctypes.byref(number)) == 0
    return number.value
for action in ("Unlock", "Lock", "Restore", "Checkpoint", "Restore", "Unlock"):
    print(do(action), state())
"""
        try:
            assert other.said == "ready"
            told = [int(word) for word in self.says(environment, asks)]
        finally:
            other.close()
        steps = [(ILLEGAL_STATE, RUNNING), (0, LOCKED), (ILLEGAL_STATE, LOCKED), (0, CHECKPOINTED), (0, LOCKED)]
        assert list(zip(told[::2], told[1::2], strict=True)) == [*steps, (0, RUNNING)]
