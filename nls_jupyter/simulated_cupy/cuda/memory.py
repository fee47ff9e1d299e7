"""Memory of a simulated Gpu: host memory, touched only when used, that the shared ledger counts.

With NLS_SIMULATED_CACHE=1 a pool keeps what dies for the next allocation of that size, as CuPy's does, and only
`free_all_blocks` gives it back; else what dies is given back at once.
"""

from __future__ import annotations

import gc
import mmap
import os
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nls_jupyter.simulated_cupy.cuda import runtime
from nls_scheduler.drivers.simulated import SimulatedOutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nls_scheduler.core.model.ids import GpuUuid, ProcessId

# CuPy's pool rounds each allocation up to this.
ROUND_BYTES = 512
CACHE_VARIABLE = "NLS_SIMULATED_CACHE"
# From here on memory is a memfd: pages that nobody wrote cost nothing, and the kernel can say which they are.
_SPARSE_BYTES = 64 << 20


class OutOfMemoryError(SimulatedOutOfMemory):
    """CuPy's name for an allocation beyond the Gpu, the allowance or the pool's limit."""


class Memory:
    """One allocation of the Gpu's own, as `cudaMalloc` gives it; given back when it dies.

    Attributes:
        ptr: host address.
        size: bytes.
        device_id: the device it counts against.
        buffer: all of it as bytes; zero at first.
    """

    __slots__ = ("__weakref__", "_fd", "_gpu", "_owner", "buffer", "device_id", "ptr", "size")

    def __init__(self, size: int) -> None:
        """On the current device. Raises CUDARuntimeError where it is full, because of SimulatedOutOfMemory."""
        self._owner: ProcessId | None = None
        self._fd = -1
        self.device_id = runtime.getDevice()
        self._gpu = runtime.gpu(self.device_id)
        self.size = size
        try:
            self._gpu.allocate(size)
        except SimulatedOutOfMemory as error:
            raise runtime.CUDARuntimeError(runtime.errorMemoryAllocation) from error
        self._owner = self._gpu.process
        self.buffer: NDArray[np.uint8] = self._map() if self.size >= _SPARSE_BYTES else np.zeros(self.size, np.uint8)
        self.ptr = int(self.buffer.ctypes.data)

    def _map(self) -> NDArray[np.uint8]:
        self._fd = os.memfd_create("nls-simulated-gpu")
        os.ftruncate(self._fd, self.size)
        return np.frombuffer(mmap.mmap(self._fd, self.size), np.uint8)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        if self._owner is not None and self.owned:
            self._gpu.free_deferred(self.size)

    @property
    def gpu(self) -> GpuUuid:
        """The simulated Gpu that it counts against."""
        return self._gpu.uuid

    @property
    def owned(self) -> bool:
        """Whether it is this process's: after a fork the memory is the parent's, in the ledger too."""
        return self._gpu.process == self._owner

    def clear(self) -> None:
        """All zero again, and of no cost to the host where it is large."""
        if self._fd < 0:
            self.buffer.fill(0)
            return
        os.ftruncate(self._fd, 0)
        os.ftruncate(self._fd, self.size)

    def extents(self) -> Iterator[tuple[int, int]]:
        """Start and end of the parts that were ever written; the rest is zero."""
        if self._fd < 0:
            yield 0, self.size
            return
        end = 0
        while end < self.size:
            try:
                start = os.lseek(self._fd, end, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                return
            end = os.lseek(self._fd, start, os.SEEK_HOLE)
            yield start, end


class PooledMemory:
    """Memory from a pool, shared by an array and its views; goes back to the pool when the last of them dies."""

    __slots__ = ("__weakref__", "_memory", "_pool", "buffer", "device_id", "ptr", "size")

    def __init__(self, memory: Memory, pool: MemoryPool) -> None:
        self._memory = memory
        self._pool = pool
        self.buffer, self.ptr, self.size, self.device_id = memory.buffer, memory.ptr, memory.size, memory.device_id

    def __del__(self) -> None:
        self._pool.take_back(self._memory)

    def extents(self) -> Iterator[tuple[int, int]]:
        """As `Memory.extents`."""
        return self._memory.extents()


class MemoryPointer:
    """A place inside memory, as `cupy.cuda.MemoryPointer`."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: Memory | PooledMemory, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset

    @property
    def device_id(self) -> int:
        """The device that the memory counts against."""
        return self.mem.device_id

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def __int__(self) -> int:
        return self.ptr


@dataclass(slots=True)
class _Device:
    """One device's part of a pool; `total_bytes` is all that it has, in use or not."""

    total_bytes: int = 0
    limit_bytes: int = 0
    free: dict[int, list[Memory]] = field(default_factory=dict)

    @property
    def free_bytes(self) -> int:
        return sum(size * len(blocks) for size, blocks in self.free.items())


class MemoryPool:
    """CuPy's pool: what dies is kept for the next allocation of the same size. One for all devices."""

    def __init__(self, allocator: Callable[[int], MemoryPointer] | None = None) -> None:
        """`allocator` is asked where no block of the size is free; it raises CUDARuntimeError(2) where it has none."""
        self._allocator = allocator or _allocate
        self._devices: dict[GpuUuid, _Device] = {}
        self._returned: deque[Memory] = deque()
        self._gone: deque[tuple[GpuUuid, int]] = deque()
        self._caches = os.environ.get(CACHE_VARIABLE) == "1"
        self._lock = threading.Lock()

    def malloc(self, size: int) -> MemoryPointer:
        """`size` bytes, rounded up, on the current device. Raises OutOfMemoryError."""
        size = -(-size // ROUND_BYTES) * ROUND_BYTES
        device = self._device()
        with self._lock:
            blocks = device.free.get(size)
            memory = blocks.pop() if blocks else None
        if memory is None:
            memory = self._more(device, size)
        else:
            memory.clear()
        return MemoryPointer(PooledMemory(memory, self), 0)

    def take_back(self, memory: Memory) -> None:
        """Finalizers call this, so it only notes: the collector may run in the middle of anything here."""
        if self._caches:
            self._returned.append(memory)
        elif memory.owned:
            self._gone.append((memory.gpu, memory.size))

    def _device(self) -> _Device:
        """The current device's part, with all that has come back."""
        with self._lock:
            while self._returned:
                memory = self._returned.popleft()
                if memory.owned:
                    self._devices[memory.gpu].free.setdefault(memory.size, []).append(memory)
            while self._gone:
                gpu, size = self._gone.popleft()
                self._devices[gpu].total_bytes -= size
            return self._devices.setdefault(runtime.gpu(runtime.getDevice()).uuid, _Device())

    def _more(self, device: _Device, size: int) -> Memory:
        """From the allocator; as in CuPy, what is cached and what only the collector can find is given up for it."""
        if device.limit_bytes and device.total_bytes + size > device.limit_bytes:
            gc.collect()
            self.free_all_blocks()
        if device.limit_bytes and device.total_bytes + size > device.limit_bytes:
            raise self._out_of_memory(size, device, None)
        device.total_bytes += size
        try:
            return self._allocated(size)
        except runtime.CUDARuntimeError as error:
            device.total_bytes -= size
            if error.status != runtime.errorMemoryAllocation:
                raise
            failure = self._out_of_memory(size, device, error.__cause__)
        except BaseException:
            device.total_bytes -= size
            raise
        raise failure

    def _allocated(self, size: int) -> Memory:
        for collects in (False, True):
            try:
                return _memory(self._allocator(size))
            except runtime.CUDARuntimeError as error:
                if error.status != runtime.errorMemoryAllocation:
                    raise
            if collects:
                gc.collect()  # arrays in reference cycles (tracebacks) may be all that is in the way
            self.free_all_blocks()
        return _memory(self._allocator(size))

    def _out_of_memory(self, size: int, device: _Device, cause: BaseException | None) -> OutOfMemoryError:
        if isinstance(cause, SimulatedOutOfMemory):
            return OutOfMemoryError(**vars(cause))
        gpu = runtime.gpu(runtime.getDevice())
        free_bytes, total_bytes = gpu.memory_info()
        return OutOfMemoryError(
            requested_bytes=size,
            used_bytes=gpu.used_bytes(),
            allowance_bytes=device.limit_bytes or gpu.allowance_bytes(),
            free_bytes=free_bytes,
            total_bytes=total_bytes,
            others=gpu.others(),
        )

    def used_bytes(self) -> int:
        """What arrays hold on the current device."""
        device = self._device()
        return device.total_bytes - device.free_bytes

    def total_bytes(self) -> int:
        """What the pool has on the current device, in use or not."""
        return self._device().total_bytes

    def free_bytes(self) -> int:
        """What it keeps on the current device for allocations to come."""
        return self._device().free_bytes

    def n_free_blocks(self) -> int:
        """In how many blocks."""
        return sum(map(len, self._device().free.values()))

    def free_all_blocks(self, stream: object = None) -> None:
        """Give back what it keeps on the current device."""
        del stream
        device = self._device()
        with self._lock:
            device.total_bytes -= device.free_bytes
            blocks, device.free = device.free, {}
        blocks.clear()
        runtime.gpu(runtime.getDevice()).settle()  # as `cudaFree`, which returns when it has been done

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Cap what the pool has on the current device, by bytes or by a fraction of it; 0 lifts the cap."""
        if (size is None) == (fraction is None):
            raise ValueError("set_limit takes either size or fraction.")
        if fraction is not None:
            size = int(fraction * runtime.gpu(runtime.getDevice()).memory_info()[1])
        if size is None or size < 0:
            raise ValueError(f"set_limit: {size} bytes is below zero.")
        self._device().limit_bytes = size

    def get_limit(self) -> int:
        """The cap in bytes; 0 without one."""
        return self._device().limit_bytes


def _allocate(size: int) -> MemoryPointer:
    return MemoryPointer(Memory(size), 0)


def _memory(pointer: MemoryPointer) -> Memory:
    assert isinstance(pointer.mem, Memory)  # noqa: S101 - a pool below a pool is nothing that CuPy has
    return pointer.mem


class _Allocator:
    """What arrays get their memory from."""

    def __init__(self) -> None:
        self.malloc: Callable[[int], MemoryPointer] = _allocate


_current = _Allocator()


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    """Have arrays get their memory from `allocator`; `None`: straight from the Gpu."""
    _current.malloc = allocator or _allocate


def get_allocator() -> Callable[[int], MemoryPointer]:
    """What arrays get their memory from."""
    return _current.malloc


def alloc(size: int) -> MemoryPointer:
    """Memory on the current device. Raises `OutOfMemoryError`."""
    return _current.malloc(size)
