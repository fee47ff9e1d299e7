"""Which memory lies behind a CuPy array, and whose it is: through DLPack it may be PyTorch's, and the other way."""

from __future__ import annotations

import sys
from typing import Any

# CuPy's names for memory that is somebody else's.
_FOREIGN = {"UnownedMemory", "DLPackMemory"}


def is_array_with_a_block(value: Any) -> bool:
    """Whether it is a CuPy array over memory of CuPy's own, not over another library's."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and type(value) is cupy.ndarray and type(value.data.mem).__name__ not in _FOREIGN


def block_behind(array: Any) -> tuple[int, int]:
    """Address and length of the memory that an array, its base and all views of that show.

    Memory of another library does not tell its length: CuPy takes the sum of a shape's parts for it, not the product.
    """
    memory = array.data.mem
    if type(memory).__name__ not in _FOREIGN:
        return memory.ptr, memory.size
    while getattr(array, "base", None) is not None:
        array = array.base
    if not array.size:
        return array.data.ptr, 0
    steps = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    start = array.data.ptr + sum(step for step in steps if step < 0)
    return start, sum(abs(step) for step in steps) + array.dtype.itemsize


def whole_block(array: Any) -> Any:
    """All memory behind an array, as an array of bytes."""
    cupy = sys.modules["cupy"]
    memory = array.data.mem
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray((memory.size,), "u1", memptr=pointer, strides=(1,))
