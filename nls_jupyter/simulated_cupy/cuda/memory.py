"""Memory of a simulated Gpu: host memory, touched only when used, that the shared ledger counts."""

from __future__ import annotations

import gc
import mmap
import os
import threading
from typing import TYPE_CHECKING

import numpy as np

from nls_jupyter.simulated_cupy.cuda import runtime
from nls_scheduler.drivers.simulated import SimulatedOutOfMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nls_scheduler.model import ProcessId

# CuPy's pool rounds each allocation up to this.
ROUND_BYTES = 512
# From here on memory is a memfd: pages that nobody wrote cost nothing, and the kernel can say which they are.
_SPARSE_BYTES = 64 << 20


class OutOfMemoryError(SimulatedOutOfMemory):
    """CuPy's name for an allocation beyond the Gpu, the allowance or the pool's limit."""


class Memory:
    """One allocation, shared by an array and its views; given back when the last of them dies.

    Attributes:
        ptr: host address.
        size: bytes, rounded up as CuPy's pool does.
        device_id: the device it counts against.
        buffer: all of it as bytes; zero at first.
    """

    __slots__ = ("__weakref__", "_fd", "_gpu", "_owner", "buffer", "device_id", "ptr", "size")

    def __init__(self, size: int) -> None:
        self._owner: ProcessId | None = None
        self._fd = -1
        self.device_id = runtime.getDevice()
        self._gpu = runtime.gpu(self.device_id)
        self.size = -(-size // ROUND_BYTES) * ROUND_BYTES
        get_pool(self.device_id).take(self.size)
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
        # After a fork the memory is the parent's, in the ledger too.
        if self._owner is not None and self._gpu.process == self._owner:
            self._gpu.free_deferred(self.size)

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


class MemoryPointer:
    """A place inside a `Memory`, as `cupy.cuda.MemoryPointer`."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: Memory, offset: int) -> None:
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


class MemoryPool:
    """CuPy's pool without its cache: what dies is given back at once."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._limit_bytes = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Count `size` bytes against the Gpu. Raises `OutOfMemoryError`."""
        try:
            self._take(size)
        except SimulatedOutOfMemory:
            gc.collect()  # as CuPy: arrays in reference cycles (tracebacks) may be all that is in the way
            try:
                self._take(size)
            except SimulatedOutOfMemory as error:
                raise OutOfMemoryError(**vars(error)) from None

    def _take(self, size: int) -> None:
        gpu = runtime.gpu(self._device_id)
        with self._lock:
            if self._limit_bytes and self.used_bytes() + size > self._limit_bytes:
                free_bytes, total_bytes = gpu.memory_info()
                raise SimulatedOutOfMemory(
                    requested_bytes=size,
                    used_bytes=self.used_bytes(),
                    allowance_bytes=self._limit_bytes,
                    free_bytes=free_bytes,
                    total_bytes=total_bytes,
                    others={},
                )
            gpu.allocate(size)

    def used_bytes(self) -> int:
        """What this process's arrays hold on the device, without the context."""
        return runtime.gpu(self._device_id).allocated_bytes()

    def total_bytes(self) -> int:
        """The same as `used_bytes`: nothing is cached."""
        return self.used_bytes()

    def free_bytes(self) -> int:
        """Nothing is cached."""
        return 0

    def n_free_blocks(self) -> int:
        """Nothing is cached."""
        return 0

    def free_all_blocks(self) -> None:
        """Nothing is cached, so nothing is to be given back."""

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Cap this process's arrays on the device, by bytes or by a fraction of it; 0 lifts the cap."""
        if (size is None) == (fraction is None):
            raise ValueError("set_limit takes either size or fraction.")
        if fraction is not None:
            size = int(fraction * runtime.gpu(self._device_id).memory_info()[1])
        if size is None or size < 0:
            raise ValueError(f"set_limit: {size} bytes is below zero.")
        self._limit_bytes = size

    def get_limit(self) -> int:
        """The cap in bytes; 0 without one."""
        return self._limit_bytes


_pools: dict[int, MemoryPool] = {}


def get_pool(device_id: int) -> MemoryPool:
    """The pool of a device."""
    return _pools.setdefault(device_id, MemoryPool(device_id))


def alloc(size: int) -> MemoryPointer:
    """Memory on the current device. Raises `OutOfMemoryError`."""
    return MemoryPointer(Memory(size), 0)
