"""What `cupy.cuda` offers and a simulated Gpu can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_jupyter.simulated_cupy.cuda import memory, runtime
from nls_jupyter.simulated_cupy.cuda.memory import (
    Memory,
    MemoryPointer,
    MemoryPool,
    alloc,
    get_allocator,
    set_allocator,
)

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "Device",
    "Memory",
    "MemoryPointer",
    "MemoryPool",
    "Stream",
    "alloc",
    "get_allocator",
    "is_available",
    "memory",
    "runtime",
    "set_allocator",
]


def is_available() -> bool:
    """Whether a simulated Gpu is visible."""
    return bool(runtime.gpus())


class Device:
    """A device number; `with Device(1):` makes it current for the calling thread."""

    def __init__(self, device: int | None = None) -> None:
        self.id = runtime.getDevice() if device is None else int(device)
        self._before: list[int] = []

    def use(self) -> None:
        """Make it current."""
        runtime.setDevice(self.id)

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back on a simulated Gpu."""
        runtime.gpu(self.id).attach()

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total bytes, whoever uses the Gpu."""
        with self:
            return runtime.memGetInfo()

    def __enter__(self) -> Device:
        self._before.append(runtime.getDevice())
        self.use()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        runtime.setDevice(self._before.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Stream:
    """CuPy's null stream: everything is already in order."""

    null: Stream

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back on a simulated Gpu."""
        runtime.deviceSynchronize()


Stream.null = Stream()
