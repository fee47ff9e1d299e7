"""The way of Gpu memory through the host that CuPy and CUDA tensors take, with host memory in the Gpu's role."""

from __future__ import annotations

import ctypes
import sys
import types
from contextlib import nullcontext

import numpy as np
import pytest

from nls_jupyter.saved_state import libraries
from saved_state_roundtrip import Roundtrip


def fake_cupy():
    """A module with as much of CuPy's interface as saved state uses; its `memcpy` is the C library's."""
    module = types.ModuleType("cupy")

    class Memory:
        def __init__(self, size):
            self.size, self.device_id = size, 0
            self._block = (ctypes.c_ubyte * size)()
            self.ptr = ctypes.addressof(self._block) if size else 0

    class MemoryPointer:
        def __init__(self, mem, offset):
            self.mem, self.ptr = mem, mem.ptr + offset

        def __add__(self, offset):
            return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

        def copy_to_host(self, address, size):
            module.copied.append(size)
            ctypes.memmove(address, self.ptr, size)

        def copy_from_host(self, address, size):
            ctypes.memmove(self.ptr, address, size)

    class ndarray:  # noqa: N801
        def __init__(self, shape, dtype, memptr, strides):
            self.shape, self.dtype, self.data, self.strides = shape, np.dtype(dtype), memptr, strides
            self.size = int(np.prod(shape))

        def host(self):
            block = np.ctypeslib.as_array(self.data.mem._block) if self.data.mem.size else np.zeros(0, np.uint8)
            offset = self.data.ptr - self.data.mem.ptr if self.size else 0
            return np.ndarray(self.shape, self.dtype, buffer=block, offset=offset, strides=self.strides)

    module.copied = []
    module.ndarray = ndarray
    module.cuda = types.SimpleNamespace(
        Device=lambda _: nullcontext(),
        MemoryPointer=MemoryPointer,
        alloc=lambda size: MemoryPointer(Memory(size), 0),
        driver=types.SimpleNamespace(ctxGetCurrent=lambda: 1),
        is_available=lambda: True,
        runtime=types.SimpleNamespace(deviceSynchronize=lambda: module.copied.append("synchronized")),
    )
    return module


@pytest.fixture
def cupy(monkeypatch):
    module = fake_cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_cupy_arrays_cross_the_host_once_per_memory_block(cupy):
    block = cupy.cuda.alloc(2 << 20)
    base = cupy.ndarray((1 << 18,), np.float64, block, (8,))
    base.host()[:] = np.arange(1 << 18)
    back = cupy.ndarray((3,), np.float64, block + 80, (-16,))
    empty = cupy.ndarray((0, 3), np.float64, cupy.cuda.alloc(0), (24, 8))
    result = Roundtrip({"base": base, "back": back, "empty": empty})
    assert cupy.copied == ["synchronized", "synchronized", 2 << 20]
    assert np.array_equal(result["base"].host(), base.host())
    assert result["back"].host().tolist() == [10, 8, 6]
    assert result["back"].data.mem is result["base"].data.mem is not block.mem
    assert result["empty"].shape == (0, 3)
    assert {name.where for name in result.manifest.saved} == {"gpu"}


def test_cupy_without_a_gpu_is_left_alone(cupy):
    cupy.cuda.is_available = lambda: False
    assert Roundtrip({"x": 1}).namespace == {"x": 1}
    assert cupy.copied == []


def test_a_failed_kernel_is_raised_and_not_saved_over(cupy):
    def fail():
        raise RuntimeError("cudaErrorIllegalAddress")

    cupy.cuda.runtime.deviceSynchronize = fail
    with pytest.raises(RuntimeError, match="IllegalAddress"):
        Roundtrip({"x": 1})


def test_tensors_of_a_device_cross_the_host_through_the_mapped_region(monkeypatch):
    torch = pytest.importorskip("torch")
    from nls_jupyter.saved_state.libraries import torch_tensors

    class OnDevice(torch_tensors.TensorMemory):
        def __init__(self, storage):
            super().__init__(storage)
            self.where = "gpu"

    monkeypatch.setattr(torch_tensors, "TensorMemory", OnDevice)
    tensor = torch.arange(100_000)
    result = Roundtrip({"offset": bytes(100), "t": tensor, "part": tensor[1:]})
    assert torch.equal(result["t"], tensor)
    assert [name.where for name in result.manifest.saved] == ["gpu", "gpu", "host"]


def test_only_imported_libraries_are_touched(monkeypatch):
    for name in ("cupy", "torch", "nls_jupyter.simulated_cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    from nls_jupyter.saved_state.regions import Regions

    assert len(libraries.loaded(Regions())) == 1  # NumPy, which this file imports
    assert "torch" not in set(sys.modules) - before
