"""What each driver promises, of the real NVML; memory is taken through the driver API, which needs no library."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from contract.driver_contract import DriverContract, Holder
from nls_scheduler.drivers.nvml import NvmlDriver
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.gpu

MIB = 2**20
HOLD = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def ok(code):
    assert code == 0, code
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t({bytes})))
print("ready", flush=True)
sys.stdin.readline()
"""


class TestNvml(DriverContract):
    # No Gpu is broken on purpose, and none is taken away.
    test_a_gpu_that_breaks_is_unhealthy_with_a_reason_until_it_is_returned = None
    test_a_gpu_keeps_its_index_when_another_is_lost = None
    test_a_gpu_that_was_chosen_by_its_index_is_not_followed_by_another = None

    @pytest.fixture
    def driver(self, idle: str) -> Iterator[NvmlDriver]:  # noqa: ARG002 - skips where there is none
        with contextlib.closing(NvmlDriver()) as driver:
            driver.discover()
            yield driver

    @pytest.fixture
    def memory_code(self) -> Callable[[int], str]:
        return lambda memory_bytes: HOLD.format(bytes=memory_bytes)

    def test_it_shows_what_nvidia_smi_shows(self, driver):
        fields = "uuid,name,memory.total,memory.reserved,memory.used"
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        gpu, sample = driver.discover()[0], driver.sample()
        uuid, name, total, reserved, used = next(line.split(", ") for line in lines if line.startswith(gpu.uuid))
        assert (gpu.uuid, gpu.name) == (uuid, name)
        assert abs(gpu.memory_total_bytes / MIB - (int(total) - int(reserved))) < 4
        assert abs(sample[gpu.uuid].memory_used_bytes / MIB - int(used)) < 64
        assert sample[gpu.uuid].processes is not None, "the driver hides the list of processes"

    def test_what_a_killed_process_held_is_shown_free(self, driver, hold):
        uuid = driver.discover()[0].uuid
        before = driver.sample()[uuid].memory_used_bytes
        holder: Holder = hold(uuid, 1024 * MIB)
        assert driver.sample()[uuid].memory_used_bytes >= before + 1024 * MIB
        holder.kill()
        wait_until(lambda: driver.sample()[uuid].memory_used_bytes < before + 64 * MIB)
