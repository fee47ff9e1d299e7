"""CuPy arrays, and those of the stand-in: each memory block is saved once, arrays by offset and strides."""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state import device_hash
from nls_jupyter.saved_state.arena import CHUNK_BYTES
from nls_jupyter.saved_state.blobs import STAGING_BYTES
from nls_jupyter.saved_state.libraries.blocks import block_behind, is_array_with_a_block
from nls_jupyter.saved_state.looks import Look, Memory

#: cudaMemoryTypeManaged of driver_types.h.
_MANAGED = 3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from nls_jupyter.saved_state.libraries import Handler, Looker
    from nls_jupyter.saved_state.manifest import Where
    from nls_jupyter.saved_state.regions import Regions
    from nls_jupyter.saved_state.store import Reader


def library(module: ModuleType, regions: Regions) -> CupyArrays:
    """CuPy, or the stand-in, for one save."""
    return CupyArrays(module, regions)


class CupyArrays:
    """Reduces exact `ndarray`s of a module with CuPy's interface."""

    def __init__(self, module: ModuleType, regions: Regions) -> None:
        self._module = module
        self._regions = regions
        self._storages: list[tuple[int, int, Any]] = []

    def handlers(self) -> Mapping[type, Handler]:
        """See `Library`."""
        return {self._module.ndarray: self._reduce}

    def prepare(self, values: list[Any]) -> None:
        """Learn where PyTorch's storages lie: an array may have been made of one (DLPack)."""
        torch = sys.modules.get("torch")
        for value in values:
            if torch is not None and isinstance(value, torch.Tensor):
                with seams.TORCH_PAST_CLASSES.here()():
                    storage = value.detach().untyped_storage()
                self._storages.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), storage))

    def lookers(self) -> Mapping[type, Looker]:
        """See `Library`."""
        return {self._module.ndarray: self._look}

    def _look(self, array: Any) -> Look:
        memory, (start, size_bytes) = array.data.mem, block_behind(array)
        first = array.data.ptr if array.size else 0
        token = repr((array.dtype, array.shape, array.strides, first, start, size_bytes)).encode()
        # The same addresses as PyTorch's: through DLPack one may show the other's memory.
        name = "cuda" if self._module.__name__ == "cupy" else self._module.__name__
        space = f"{name} {memory.device_id}"
        source = functools.partial(DeviceMemory, self._module, memory, start, size_bytes)
        return Look(token, (), Memory(space, start, size_bytes, self._key(memory, start, size_bytes), source))

    def _key(self, memory: Any, start: int, size_bytes: int) -> object:
        return (self._module.__name__, memory.device_id, start, size_bytes)

    def _is_managed(self, address: int) -> bool:
        """Whether it is shared with the host; the stand-in has none, and CuPy before 12 does not tell."""
        attributes = getattr(getattr(self._module.cuda, "runtime", None), "pointerGetAttributes", None)
        return attributes is not None and getattr(attributes(address), "type", None) == _MANAGED

    def _reduce(self, array: Any) -> Any:
        memory, (start, size_bytes) = array.data.mem, block_behind(array)
        if not is_array_with_a_block(array) and array.size:
            for first, end, theirs in self._storages:
                if first <= start and start + size_bytes <= end:
                    place = (array.dtype, array.shape, array.strides, array.data.ptr - first)
                    return load_from_storage, (self._module.__name__, theirs, *place)
        if size_bytes and self._is_managed(start):
            self._regions.note("managed memory comes back as memory of the GPU alone")
        storage = self._regions.storage(
            self._key(memory, start, size_bytes),
            lambda: DeviceMemory(self._module, memory, start, size_bytes),
            load_memory,
            self._module.__name__,
            memory.device_id,
            culprit=array,
        )
        offset = array.data.ptr - start if array.size else 0
        return load_array, (self._module.__name__, storage, array.dtype, array.shape, array.strides, offset)


class DeviceMemory:
    """Memory on a Gpu, a whole block or what another library lent of one, as a `store.Source`."""

    where: Where = "gpu"

    def __init__(self, module: ModuleType, memory: Any, start: int, size_bytes: int) -> None:
        self._module = module
        self._memory = memory
        self._offset = start - memory.ptr
        self.size_bytes = size_bytes
        self._own = threading.local()

    def memory(self) -> None:
        """See `Source`."""

    def pieces(self) -> Iterator[memoryview | None]:
        """See `Source`."""
        if not self.size_bytes:
            return
        if hasattr(self._memory, "extents"):  # simulated: most of it may never have been touched
            yield from _touched(self._memory)
            return
        for number in range(-(-self.size_bytes // CHUNK_BYTES)):
            yield self.piece(number)

    def piece(self, first: int, count: int = 1) -> memoryview:
        """See `OnDevice`; of a real block."""
        start = first * CHUNK_BYTES
        size_bytes = min(count * CHUNK_BYTES, self.size_bytes - start)
        with self._module.cuda.Device(self._memory.device_id):
            if not hasattr(self._own, "buffer"):
                self._module.cuda.runtime.deviceSynchronize()
                self._own.buffer = _staging(self._module, self.size_bytes)
            buffer: memoryview = self._own.buffer[:size_bytes]
            pointer = self._module.cuda.MemoryPointer(self._memory, self._offset + start)
            pointer.copy_to_host(_address(buffer), size_bytes)
        return buffer

    def fingerprints(self) -> list[bytes] | None:
        """See `device_hash`; `None` where the device has no room for it, or cannot address the block in words."""
        if hasattr(self._memory, "extents") or not self.size_bytes:
            return None
        module = self._module
        try:
            with module.cuda.Device(self._memory.device_id):
                pointer = module.cuda.MemoryPointer(self._memory, self._offset)
                return device_hash.of_block(module, pointer, self.size_bytes)
        except module.cuda.memory.OutOfMemoryError:
            return None


def _staging(module: Any, size_bytes: int) -> memoryview:
    """Host memory for one piece, page-locked: the way through ordinary memory is several times slower."""
    return memoryview(module.cuda.alloc_pinned_memory(min(STAGING_BYTES, size_bytes))).cast("B")


def _touched(memory: Any) -> Iterator[memoryview | None]:
    """A simulated block, without reading what was never written: reading alone would take up memory."""
    extents = iter(memory.extents())
    first, last = next(extents, (memory.size, memory.size))
    for start in range(0, memory.size, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, memory.size)
        while last <= start:
            first, last = next(extents, (memory.size, memory.size))
        untouched = first >= end and end - start == CHUNK_BYTES
        yield None if untouched else memory.buffer[start:end].data


def load_memory(reader: Reader, region: int, module_name: str, device_id: int) -> Any:
    """A pointer to newly allocated memory with a region's content. Raises the library's out-of-memory error."""
    module = importlib.import_module(module_name)
    cuda = module.cuda
    size_bytes = reader.size_bytes(region)
    with cuda.Device(device_id):
        pointer = cuda.alloc(size_bytes)
        if not size_bytes:
            return pointer
        if hasattr(pointer.mem, "extents"):
            reader.read_into(region, pointer.mem.buffer.data, zeroed=True)
            return pointer

    def write(offset: int, content: memoryview) -> None:
        with cuda.Device(device_id):
            (pointer + offset).copy_from_host(_address(content), content.nbytes)

    reader.read_each(region, lambda: _staging(module, size_bytes), write)
    return pointer


def _address(content: memoryview) -> int:
    return ctypes.addressof((ctypes.c_ubyte * content.nbytes).from_buffer(content))


def load_from_storage(
    module_name: str, storage: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Any:
    """An array over the memory of a restored PyTorch storage."""
    torch, module = importlib.import_module("torch"), importlib.import_module(module_name)
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))
    pointer = module.from_dlpack(flat).data
    return load_array(module_name, pointer, dtype, shape, strides, offset)


def load_array(
    module_name: str, pointer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Any:
    """An array over restored memory."""
    module = importlib.import_module(module_name)
    with module.cuda.Device(pointer.mem.device_id):
        return module.ndarray(shape, dtype, memptr=pointer + offset, strides=strides)
