"""CuPy arrays, and those of the stand-in: each memory block is saved once, arrays by offset and strides."""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import device_hash
from nls_jupyter.saved_state.arena import CHUNK_BYTES
from nls_jupyter.saved_state.looks import Look, Memory
from nls_jupyter.saved_state.regions import Regions, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from nls_jupyter.saved_state.libraries import Handler, Looker
    from nls_jupyter.saved_state.manifest import Where
    from nls_jupyter.saved_state.store import Reader


_WORD_BYTES = 8


def library(module: ModuleType, regions: Regions) -> CupyArrays:
    """CuPy, or the stand-in, for one save."""
    return CupyArrays(module, regions)


class CupyArrays:
    """Reduces exact `ndarray`s of a module with CuPy's interface."""

    def __init__(self, module: ModuleType, regions: Regions) -> None:
        self._module = module
        self._regions = regions

    def handlers(self) -> Mapping[type, Handler]:
        """See `Library`."""
        handlers: dict[type, Handler] = {self._module.ndarray: self._reduce}
        for name, what in (("Stream", "a CUDA stream"), ("Event", "a CUDA event"), ("MemoryPool", "a memory pool")):
            kind = getattr(self._module.cuda, name, None)
            if kind is not None:
                handlers[kind] = refuse(what)
        return handlers

    def prepare(self, values: list[Any]) -> None:
        """Nothing needs to be known beforehand."""

    def lookers(self) -> Mapping[type, Looker]:
        """See `Library`."""
        return {self._module.ndarray: self._look}

    def _look(self, array: Any) -> Look:
        memory = array.data.mem
        start = array.data.ptr if array.size else 0
        token = repr((array.dtype, array.shape, array.strides, start, memory.ptr, memory.size)).encode()
        # The same addresses as PyTorch's: through DLPack one may show the other's memory.
        name = "cuda" if self._module.__name__ == "cupy" else self._module.__name__
        space = f"{name} {memory.device_id}"
        source = functools.partial(DeviceMemory, self._module, memory)
        return Look(token, (), Memory(space, memory.ptr, memory.size, self._key(memory), source))

    def _key(self, memory: Any) -> object:
        return (self._module.__name__, memory.device_id, memory.ptr, memory.size)

    def _reduce(self, array: Any) -> Any:
        memory = array.data.mem
        storage = self._regions.storage(
            self._key(memory),
            lambda: DeviceMemory(self._module, memory),
            load_memory,
            self._module.__name__,
            memory.device_id,
            culprit=array,
        )
        offset = array.data.ptr - memory.ptr if array.size else 0
        return load_array, (self._module.__name__, storage, array.dtype, array.shape, array.strides, offset)


class DeviceMemory:
    """One memory block on a Gpu as a `store.Source`."""

    where: Where = "gpu"

    def __init__(self, module: ModuleType, memory: Any) -> None:
        self._module = module
        self._memory = memory
        self.size_bytes: int = memory.size
        self._buffer = bytearray(0 if hasattr(memory, "extents") else min(CHUNK_BYTES, memory.size))

    def pieces(self) -> Iterator[memoryview | None]:
        """See `Source`."""
        if not self.size_bytes:
            return
        if hasattr(self._memory, "extents"):  # simulated: most of it may never have been touched
            yield from _touched(self._memory)
            return
        for number in range(-(-self.size_bytes // CHUNK_BYTES)):
            yield self.piece(number)

    def piece(self, number: int) -> memoryview:
        """One piece of a real block. Valid until the next one."""
        start = number * CHUNK_BYTES
        count = min(CHUNK_BYTES, self.size_bytes - start)
        first = (ctypes.c_ubyte * count).from_buffer(self._buffer)
        with self._module.cuda.Device(self._memory.device_id):
            self._module.cuda.runtime.deviceSynchronize()
            self._module.cuda.MemoryPointer(self._memory, start).copy_to_host(ctypes.addressof(first), count)
        return memoryview(self._buffer)[:count]

    def fingerprints(self) -> list[bytes] | None:
        """See `device_hash`; `None` where the device has no room for it, or cannot address the block in words."""
        if hasattr(self._memory, "extents") or self.size_bytes % _WORD_BYTES or not self.size_bytes:
            return None
        module = self._module
        try:
            with module.cuda.Device(self._memory.device_id):
                pointer = module.cuda.MemoryPointer(self._memory, 0)
                words = module.ndarray((self.size_bytes // _WORD_BYTES,), "u8", memptr=pointer, strides=(_WORD_BYTES,))
                return device_hash.fingerprints(module, words)
        except module.cuda.memory.OutOfMemoryError:
            return None


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
    cuda = importlib.import_module(module_name).cuda
    size_bytes = reader.size_bytes(region)
    with cuda.Device(device_id):
        pointer = cuda.alloc(size_bytes)
        if not size_bytes:
            return pointer
        if hasattr(pointer.mem, "extents"):
            reader.read_into(region, pointer.mem.buffer.data, zeroed=True)
            return pointer
        for offset, content in reader.pieces(region):
            piece = (ctypes.c_ubyte * content.nbytes).from_buffer(content)
            (pointer + offset).copy_from_host(ctypes.addressof(piece), content.nbytes)
    return pointer


def load_array(
    module_name: str, pointer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Any:
    """An array over restored memory."""
    module = importlib.import_module(module_name)
    with module.cuda.Device(pointer.mem.device_id):
        return module.ndarray(shape, dtype, memptr=pointer + offset, strides=strides)
