"""Python's own objects whose memory arrays and tensors may show: `np.frombuffer(bytearray)`, `torch.frombuffer`."""

from __future__ import annotations

import array
import ctypes
import mmap
from typing import Any

#: Objects that are saved with their content, so that what shows their memory can be made of them again.
OWNERS = (bytes, bytearray, array.array)
#: Of CuPy's page-locked memory, over which `cupyx.empty_pinned` makes arrays of NumPy.
_PAGE_LOCKED = "cupy.cuda.pinned_memory"


def owner_behind(base: Any) -> Any:
    """The object whose memory a buffer is, where saved state keeps such objects; `None` for any other."""
    if type(base) is memoryview:
        base = base.obj
    return base if type(base) in OWNERS else None


def lender_behind(base: Any) -> str | None:
    """What kind of object lends a buffer that the user holds and that is not kept; `None` for a library's own."""
    owner = base.obj if type(base) is memoryview else base
    lends = isinstance(owner, (mmap.mmap, ctypes.Array, ctypes.Structure)) or type(owner).__module__ == _PAGE_LOCKED
    return type(owner).__name__ if lends else None


def span_of(owner: Any) -> tuple[int, int]:
    """First address and length of an owner's memory; an empty one has no address."""
    if type(owner) is array.array:
        start, count = owner.buffer_info()
        return start, count * owner.itemsize
    if not owner:
        return 0, 0
    if type(owner) is bytearray:
        return ctypes.addressof(ctypes.c_char.from_buffer(owner)), len(owner)
    address = ctypes.cast(ctypes.c_char_p(owner), ctypes.c_void_p).value
    assert address is not None  # noqa: S101 - it is not empty
    return address, len(owner)
