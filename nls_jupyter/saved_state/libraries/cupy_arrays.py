"""CuPy arrays, and those of the stand-in: each memory block is saved once, arrays by offset and strides."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.regions import Regions, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from nls_jupyter.saved_state.libraries import Handler
    from nls_jupyter.saved_state.manifest import Where
    from nls_jupyter.saved_state.store import Reader, RegionWriter


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

    def _reduce(self, array: Any) -> Any:
        memory = array.data.mem
        storage = self._regions.storage(
            (self._module.__name__, memory.device_id, memory.ptr, memory.size),
            lambda: DeviceMemory(self._module, memory),
            load_memory,
            self._module.__name__,
            memory.device_id,
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

    def write(self, region: RegionWriter) -> None:
        """Copy the block to the host."""
        if not self.size_bytes:
            return
        if hasattr(self._memory, "extents"):  # simulated: most of it may never have been touched
            for start, end in self._memory.extents():
                region.write(self._memory.buffer[start:end].data, start)
            return
        with self._module.cuda.Device(self._memory.device_id), region.address() as address:
            self._module.cuda.runtime.deviceSynchronize()
            self._module.cuda.MemoryPointer(self._memory, 0).copy_to_host(address, self.size_bytes)


def load_memory(reader: Reader, region: int, module_name: str, device_id: int) -> Any:
    """A pointer to newly allocated memory with a region's content. Raises the library's out-of-memory error."""
    cuda = importlib.import_module(module_name).cuda
    size_bytes = reader.size_bytes(region)
    with cuda.Device(device_id):
        pointer = cuda.alloc(size_bytes)
        if not size_bytes:
            return pointer
        if hasattr(pointer.mem, "extents"):
            reader.read_written(region, pointer.mem.buffer.data)
        else:
            with reader.address(region) as address:
                pointer.copy_from_host(address, size_bytes)
    return pointer


def load_array(
    module_name: str, pointer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Any:
    """An array over restored memory."""
    module = importlib.import_module(module_name)
    with module.cuda.Device(pointer.mem.device_id):
        return module.ndarray(shape, dtype, memptr=pointer + offset, strides=strides)
