"""The way of Gpu memory through the host that CuPy and CUDA tensors take, with host memory in the Gpu's role."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
import threading
import types
from contextlib import nullcontext

import numpy as np
import pytest

from nls_jupyter.saved_state import Saver, device_hash, libraries, other_threads, parallel
from saved_state_roundtrip import Roundtrip, restore


def fake_cupy():  # noqa: C901 - a module of small classes
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

        def __getitem__(self, part):
            return self.host()[part]

        def host(self):
            block = np.ctypeslib.as_array(self.data.mem._block) if self.data.mem.size else np.zeros(0, np.uint8)
            offset = self.data.ptr - self.data.mem.ptr if self.size else 0
            return np.ndarray(self.shape, self.dtype, buffer=block, offset=offset, strides=self.strides)

        def __dlpack__(self, **options):
            return self.host().__dlpack__(**options)

        def __dlpack_device__(self):
            return self.host().__dlpack_device__()

    class UnownedMemory:
        def __init__(self, ptr, size, owner):
            self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, 0
            self._block = (ctypes.c_ubyte * size).from_address(ptr)

    UnownedMemory.__name__ = "DLPackMemory"

    def from_dlpack(tensor):
        """As CuPy's, with its length of a memory: the sum of the shape."""
        item = tensor.element_size()
        memory = UnownedMemory(tensor.data_ptr(), sum(tensor.shape) * item, tensor)
        memory._block = (ctypes.c_ubyte * (tensor.numel() * item)).from_address(memory.ptr)
        dtype = str(tensor.dtype).removeprefix("torch.")
        strides = tuple(step * item for step in tensor.stride())
        return ndarray(tuple(tensor.shape), dtype, MemoryPointer(memory, 0), strides)

    module.from_dlpack = from_dlpack
    module.copied = []
    module.arange, module.uint64, module.stack = np.arange, np.uint64, np.stack
    module.zeros, module.concatenate = np.zeros, np.concatenate
    module.ndarray = ndarray
    module.cuda = types.SimpleNamespace(
        Device=lambda _: nullcontext(),
        MemoryPointer=MemoryPointer,
        alloc_pinned_memory=bytearray,
        alloc=lambda size: MemoryPointer(Memory(size), 0),
        driver=types.SimpleNamespace(ctxGetCurrent=lambda: 1),
        is_available=lambda: True,
        memory=types.SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {})),
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
    assert [step for step in cupy.copied if step != "synchronized"] == [2 << 20]
    assert np.array_equal(result["base"].host(), base.host())
    assert result["back"].host().tolist() == [10, 8, 6]
    assert result["back"].data.mem is result["base"].data.mem is not block.mem
    assert result["empty"].shape == (0, 3)
    assert {name.where for name in result.manifest.saved} == {"gpu"}


def test_managed_memory_comes_back_as_memory_of_the_gpu_and_that_is_named(cupy):
    blocks = {name: cupy.ndarray((8,), np.float64, cupy.cuda.alloc(64), (8,)) for name in ("managed", "plain")}
    kinds = {block.data.ptr: kind for block, kind in zip(blocks.values(), (3, 2), strict=True)}  # as cudaMemoryType
    cupy.cuda.runtime.pointerGetAttributes = lambda address: types.SimpleNamespace(type=kinds[address])
    changed = [(changed.name, changed.change) for changed in Roundtrip(blocks).manifest.changed]
    assert changed == [("managed", "managed memory comes back as memory of the GPU alone")]


def test_page_locked_memory_comes_back_as_ordinary_memory_and_that_is_named(monkeypatch):
    torch = pytest.importorskip("torch")
    names = {"locked": torch.arange(4), "plain": torch.arange(5)}
    locked = names["locked"].untyped_storage().data_ptr()
    asked = []

    def is_pinned(tensor):
        asked.append(tensor.data_ptr())
        return tensor.data_ptr() == locked

    monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
    assert not Roundtrip(names).manifest.changed
    assert not asked, "to ask initializes CUDA, where it is not in use"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    changed = [(changed.name, changed.change) for changed in Roundtrip(names).manifest.changed]
    assert changed == [("locked", "page-locked memory comes back as ordinary memory")]


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


def test_the_users_default_device_is_not_where_saved_state_works(monkeypatch):
    torch = pytest.importorskip("torch")
    from nls_jupyter.saved_state.libraries import torch_tensors

    class OnDevice(torch_tensors.TensorMemory):
        def __init__(self, storage):
            super().__init__(storage)
            self.where = "gpu"

    monkeypatch.setattr(torch_tensors, "TensorMemory", OnDevice)
    tensor = torch.arange(100_000)
    torch.set_default_device("meta")  # the only other one that each build has
    try:
        result = Roundtrip({"t": tensor})
    finally:
        torch.set_default_device(None)
    assert torch.equal(result["t"], tensor)


class TestMemoryOfTwoLibraries:
    """DLPack; here both take host memory for a device's."""

    def test_an_array_over_a_tensor_shows_it_again(self, cupy):
        torch = pytest.importorskip("torch")
        tensor = torch.arange(100_000)
        whole = cupy.from_dlpack(tensor.view(torch.uint8))
        part = cupy.ndarray((10,), np.int64, whole.data + 80, (16,))
        result = Roundtrip({"both": [tensor, whole, part]})
        again, shown, slice_of_it = result["both"]
        assert slice_of_it.host().tolist() == list(range(10, 30, 2))
        again[12] = -5
        assert slice_of_it.host()[1] == -5
        assert shown.host().view(np.int64)[12] == -5
        assert not result.manifest.changed

    def test_an_array_over_a_tensor_that_nobody_names_is_saved_whole(self, cupy):
        torch = pytest.importorskip("torch")
        array = cupy.from_dlpack(torch.arange(600 * 500).reshape(600, 500))
        result = Roundtrip({"array": array})
        assert np.array_equal(result["array"].host(), array.host())

    def test_a_tensor_over_an_array_shows_it_again(self, cupy):
        torch = pytest.importorskip("torch")
        array = cupy.ndarray((1000,), np.float64, cupy.cuda.alloc(8000), (8,))
        array.host()[:] = np.arange(1000)
        tensor = torch.from_dlpack(array)
        result = Roundtrip({"both": [tensor[5:], array]})
        again, owner = result["both"]
        assert torch.equal(again, tensor[5:])
        owner.host()[7] = -1
        assert again[2] == -1
        again[3] = -2
        assert owner.host()[8] == -2


def test_only_imported_libraries_are_touched(monkeypatch):
    for name in ("cupy", "numba", "torch", "nls_jupyter.simulated_cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    from nls_jupyter.saved_state.regions import Regions

    assert len(libraries.loaded(Regions())) == 1  # NumPy, which this file imports
    assert "torch" not in set(sys.modules) - before


def test_memory_that_has_not_changed_on_its_device_is_not_copied(cupy):
    block = cupy.cuda.alloc(5 << 19)
    names = {"a": cupy.ndarray((5 << 16,), np.float64, block, (8,))}
    names["a"].host()[:] = np.random.default_rng(0).random(5 << 16)
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        del cupy.copied[:]
        saver.save(names, cell=None)
        assert set(cupy.copied) <= {"synchronized"}
        names["a"].host()[(1 << 17) + 5] *= -1
        saver.save(names, cell=None)
        assert [step for step in cupy.copied if step != "synchronized"] == [1 << 20]
        namespace = {}
        restore(saver.descriptors(), namespace)
        assert np.array_equal(namespace["a"].host(), names["a"].host())


@pytest.fixture
def while_it_saves(monkeypatch):
    """A thread that runs in each save once it has been looked at all; what it does."""
    does, asked = [], []

    def run_times_ns():
        asked.append(None)
        if len(asked) % 2 == 0:
            for work in does:
                work()
        return {1: len(asked)}

    monkeypatch.setattr(other_threads, "run_times_ns", run_times_ns)
    return does


def test_a_thread_that_has_changed_nothing_has_no_memory_of_a_device_copied_for_it(cupy, while_it_saves):
    names = {"a": cupy.ndarray((1 << 18,), np.float64, cupy.cuda.alloc(2 << 20), (8,))}
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        del cupy.copied[:]
        assert saver.save(names, cell=None).changed == ()
        assert set(cupy.copied) <= {"synchronized"}
        while_it_saves.append(lambda: names["a"].host().__setitem__(5, 7.5))
        (changed,) = saver.save(names, cell=None).changed
        assert (changed.name, set(cupy.copied)) == ("a", {"synchronized"})


def test_the_thread_that_tqdm_leaves_behind_counts_while_a_bar_is_open():
    tqdm = pytest.importorskip("tqdm")
    bar = tqdm.tqdm(range(3), file=io.StringIO())
    monitor = bar.monitor
    assert monitor.native_id in other_threads.run_times_ns()
    for _ in bar:
        pass
    assert monitor.native_id not in other_threads.run_times_ns()
    monitor.exit()
    tqdm.tqdm.monitor = None


def test_threads_share_a_large_block_and_each_has_its_own_page_locked_memory(cupy, monkeypatch):
    """Each piece that a thread takes is seen once more after another thread has taken one."""
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: {0, 1})
    both, meeting = threading.Barrier(2, timeout=30), [0, 8]
    copy = cupy.cuda.MemoryPointer.copy_to_host

    def copy_and_meet(pointer, address, size):
        copy(pointer, address, size)
        if (pointer.ptr - pointer.mem.ptr) >> 20 in meeting:  # the first two pieces
            both.wait()

    monkeypatch.setattr(cupy.cuda.MemoryPointer, "copy_to_host", copy_and_meet)
    names = {"a": cupy.ndarray((9 << 17,), np.float64, cupy.cuda.alloc(9 << 20), (8,))}
    names["a"].host()[:] = np.random.default_rng(0).random(9 << 17)
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        namespace = {}
        restore(saver.descriptors(), namespace)
    assert np.array_equal(namespace["a"].host(), names["a"].host())
    assert both.broken is False


def test_damage_to_a_large_block_is_named_though_several_threads_read_it(cupy):
    names = {"large": cupy.ndarray((9 << 17,), np.float64, cupy.cuda.alloc(9 << 20), (8,)), "other": [1]}
    content = names["large"].host()
    content[:] = np.random.default_rng(0).random(9 << 17)
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        (fd, *_) = saver.descriptors()
        place = os.pread(fd, os.fstat(fd).st_size, 0).index(content[5 << 17 : (5 << 17) + 5].tobytes())
        os.pwrite(fd, b"damage", place)
        namespace = {}
        report = restore(saver.descriptors(), namespace)
    assert namespace == {"other": [1]}
    assert [name.reason for name in report.missing] == ["its part of the saved state is damaged"]


@pytest.mark.parametrize("odd_bytes", [0, 3])
def test_a_large_tensor_crosses_the_host_in_several_threads(monkeypatch, odd_bytes):
    """Both ways, with a storage in the Gpu's role that only `copy_` may write to."""
    torch = pytest.importorskip("torch")
    from nls_jupyter.saved_state.libraries import torch_tensors

    class OnDevice(torch_tensors.TensorMemory):
        def __init__(self, storage):
            super().__init__(storage)
            self.where = "gpu"

    real_load = torch_tensors.load_storage

    def load(reader, region, _):
        memory = torch.zeros(reader.size_bytes(region), dtype=torch.uint8)
        there = types.SimpleNamespace(device=types.SimpleNamespace(type="another"))
        with monkeypatch.context() as on_device:
            on_device.setattr(torch, "UntypedStorage", lambda size, device: there)
            on_device.setattr(torch_tensors, "_as_bytes", lambda storage: memory)
            assert real_load(reader, region, "another") is there
        return memory.untyped_storage()

    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    tensor = torch.randint(0, 256, (9 * (1 << 20) + odd_bytes,), dtype=torch.uint8)
    monkeypatch.setattr(torch_tensors, "TensorMemory", OnDevice)
    with contextlib.closing(Saver()) as saver:
        saver.save({"t": tensor}, cell=None)
        monkeypatch.setattr(torch_tensors, "load_storage", load)
        namespace = {}
        restore(saver.descriptors(), namespace)
    assert torch.equal(namespace["t"], tensor)


def test_without_room_for_the_look_on_the_device_memory_is_copied(cupy, monkeypatch):
    def full(*_):
        raise cupy.cuda.memory.OutOfMemoryError

    monkeypatch.setattr(device_hash, "fingerprints", full)
    names = {"a": cupy.ndarray((1 << 17,), np.float64, cupy.cuda.alloc(1 << 20), (8,))}
    with contextlib.closing(Saver()) as saver:
        for _ in range(2):
            del cupy.copied[:]
            saver.save(names, cell=None)
            assert 1 << 20 in cupy.copied


def test_tensors_that_have_not_changed_on_their_device_are_not_copied(monkeypatch):
    torch = pytest.importorskip("torch")
    from nls_jupyter.saved_state.libraries import torch_tensors

    copied = []

    class OnDevice(torch_tensors.TensorMemory):
        def __init__(self, storage):
            super().__init__(storage)
            self.where = "gpu"

        def piece(self, first, count=1):
            copied.extend(range(first, first + count))
            return super().piece(first, count)

    monkeypatch.setattr(torch_tensors, "TensorMemory", OnDevice)
    names = {"t": torch.rand(5 << 17, dtype=torch.float64), "odd": torch.zeros(70_001, dtype=torch.uint8)}
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        names["t"][(1 << 17) + 5] *= -1
        del copied[:]
        saver.save(names, cell=None)
        assert copied == [1]  # the chunk that changed
        names["odd"][-1] = 7
        saver.save(names, cell=None)
        assert copied == [1, 0]  # what changed behind the last whole word
        namespace = {}
        restore(saver.descriptors(), namespace)
    assert torch.equal(namespace["t"], names["t"])


@pytest.mark.parametrize("odd_bytes", [0, 1, 7])
def test_a_block_of_any_length_is_looked_at_on_its_device(cupy, odd_bytes):
    array = cupy.ndarray(((1 << 20) + odd_bytes,), np.uint8, cupy.cuda.alloc((1 << 20) + odd_bytes), (1,))
    with contextlib.closing(Saver()) as saver:
        for value, copied in ((0, {(1 << 20) + odd_bytes}), (0, set()), (9, {odd_bytes or 1 << 20})):
            array.host()[-1] = value
            del cupy.copied[:]
            saver.save({"a": array}, cell=None)
            assert {*cupy.copied} - {"synchronized"} == copied


def test_memory_that_does_not_begin_at_a_word_is_copied():
    """To read words of it would be an error on the device that ends its context."""
    torch = pytest.importorskip("torch")
    assert device_hash.of_tensor(torch.zeros(100, dtype=torch.uint8)[1:]) is None
    assert device_hash.of_block(None, types.SimpleNamespace(ptr=4), 100) is None


class TestFingerprints:
    @pytest.mark.parametrize("count", [1, 1000, 1 << 17, (1 << 17) + 1, 17 << 17])
    def test_those_of_a_tensor_are_those_of_an_array(self, count):
        torch = pytest.importorskip("torch")
        words = np.random.default_rng(0).integers(0, 1 << 64, count, dtype=np.uint64)
        found = device_hash.tensor_fingerprints(torch.from_numpy(words.view(np.int64)))
        assert found == device_hash.fingerprints(np, words)

    @pytest.mark.parametrize("count", [1, 1000, 1 << 17, (1 << 17) + 1, 9 << 17])
    def test_each_chunk_has_its_own(self, count):
        words = np.random.default_rng(0).integers(0, 1 << 63, count, dtype=np.uint64)
        found = device_hash.fingerprints(np, words)
        assert len(found) == -(-count // (1 << 17))
        assert len(set(found)) == len(found)
        words[-1] ^= 1
        again = device_hash.fingerprints(np, words)
        assert [one == other for one, other in zip(found, again, strict=True)] == [True] * (len(found) - 1) + [False]

    def test_changes_that_cancel_in_a_plain_sum_are_seen(self):
        words = np.zeros(1 << 17, np.uint64)
        before = device_hash.fingerprints(np, words)
        for change in (lambda w: w.__setitem__([3, 4], 1 << 63), lambda w: w.__setitem__([0, 1], [1, 2**64 - 1])):
            changed = words.copy()
            change(changed)
            assert device_hash.fingerprints(np, changed) != before
        ordered = np.arange(1 << 17, dtype=np.uint64)
        assert device_hash.fingerprints(np, ordered) != device_hash.fingerprints(np, ordered[::-1].copy())
