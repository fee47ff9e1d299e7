"""The memory file as a part of this process's address space: copying there costs a third of what a system call does.

A page that the file lacks would be allocated at the first touch, and a machine without room for it answers with SIGBUS.
So only places that were allocated before are written to here, and nothing is read.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from typing import Final

_SMALLEST_BYTES = 1 << 26
_MAYMOVE = 1
# From Linux 5.14: page tables for a whole range in one call. Earlier ones refuse it, and each page costs a fault.
_POPULATE_WRITE = 23
_FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(content: memoryview) -> int:
    """Where memory lies, also such as may not be written to. Raises BufferError."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(content), ctypes.byref(buffer), 0)
    address = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address or 0


class Window:
    """A shared mapping of a memory file, which grows as the file does.

    Several threads may `write`, each to a place of its own, while none calls `reach` or `close`; any may `populate`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._address: int | None = None
        self._size_bytes = 0
        self._moving = threading.Lock()
        # Places that this process has page tables of: to ask for them again takes a fifth of the copy's time.
        self._written: set[int] = set()
        self._process = os.getpid()

    def reach(self, end: int) -> bool:
        """Map at least the first `end` bytes; False where the system refuses, as under a limit of address space."""
        if end <= self._size_bytes:
            return True
        size_bytes = max(_SMALLEST_BYTES, 1 << (end - 1).bit_length())  # beyond the file's end it costs nothing
        with self._moving:
            if self._address is None:
                protection = mmap.PROT_READ | mmap.PROT_WRITE
                address = _libc.mmap(None, size_bytes, protection, mmap.MAP_SHARED, self._fd, 0)
            else:
                address = _libc.mremap(self._address, self._size_bytes, size_bytes, _MAYMOVE)
            if address == _FAILED:
                return False
            self._address, self._size_bytes = address, size_bytes
        return True

    def holds(self, end: int) -> bool:
        """Whether the first `end` bytes were reached."""
        return end <= self._size_bytes

    def write(self, position: int, content: memoryview) -> None:
        """Copy to a place on whole pages that was reached, as large as each that begins there; without the GIL."""
        if self._address is None or not self.holds(position + content.nbytes):
            raise ValueError("outside of the window")
        target = self._address + position
        if self._process != (process := os.getpid()):  # a fork has none of them
            self._written, self._process = set(), process
        if position not in self._written:
            _libc.madvise(target, content.nbytes, _POPULATE_WRITE)
            self._written.add(position)
        ctypes.memmove(target, address_of(content), content.nbytes)

    def forget(self, position: int) -> None:
        """The file has given up the place that begins there."""
        self._written.discard(position)

    def populate(self, position: int, size_bytes: int) -> None:
        """Fill in the page tables of a place on whole pages, as far as the system does that in advance."""
        with self._moving:
            if self._address is not None and position + size_bytes <= self._size_bytes:
                _libc.madvise(self._address + position, size_bytes, _POPULATE_WRITE)

    def close(self) -> None:
        """Unmap. Idempotent."""
        with self._moving:
            if self._address is not None:
                _libc.munmap(self._address, self._size_bytes)
            self._address, self._size_bytes = None, 0
