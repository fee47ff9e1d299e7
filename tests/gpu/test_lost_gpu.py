"""Variables come back from a Gpu that an error has cost their process, and to one that somebody else had filled."""

from __future__ import annotations

import pytest
from test_nvml_gpu import HOLD

from contract.driver_contract import Holder
from nls_scheduler.drivers.nvml import NvmlDriver

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

FAULT = """
bad = xp.RawKernel(r'extern "C" __global__ void f(int* p) { p[threadIdx.x] = 1; }', 'f')
bad((1,), (32,), (xp.uint64(0x10),))
xp.cuda.runtime.deviceSynchronize()
"""


def test_an_illegal_access_ends_the_process_and_the_next_cell_has_what_was_saved(idle, node):
    pytest.importorskip("cupy")
    book = node.bench.open()
    book.gpu("from nls_jupyter import xp\nx = xp.arange(1000)")
    book.run("%gpu save")
    pid = book.entry()["pid"]
    assert "illegal" in book.fails(f"%%gpu\n{FAULT}").evalue.lower()
    again = book.gpu("int(x.sum())")
    assert again.result == "499500"
    assert "illegal memory access" in again.stderr
    assert book.entry()["pid"] != pid
    assert node.bench.daemon.status()["gpus"][0]["healthy"], "an application's error is none of the GPU"


def test_variables_wait_for_room_on_a_gpu_that_somebody_else_has_filled(idle, node):
    pytest.importorskip("torch")
    book = node.bench.open()
    book.gpu("import torch\nx = torch.arange(1 << 26, device='cuda')")
    assert "uspended" in book.run("%gpu suspend").stdout
    book.entry(phase="suspended")
    driver = NvmlDriver()
    used = driver.discover() and driver.sample()[idle].memory_used_bytes
    stranger = Holder(HOLD.format(bytes=node.total_bytes - used - (1 << 30)), dict(driver.environment([idle])))
    driver.close()
    try:
        assert stranger.said == "ready"
        cell = book.start("%%gpu\nint(x[-1])")
        cell.until(lambda outputs: outputs.displays)
    finally:
        stranger.close()
    assert cell.finish().result == str((1 << 26) - 1)
