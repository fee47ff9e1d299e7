"""The memory file as a part of this process's address space: copying there costs a third of what a system call does.

A page that the file lacks would be allocated at the first touch, and a machine without room for it answers with SIGBUS.
So only places that were allocated before are written to here, and nothing is read.

Where the system can, what is new to the file is allocated as huge pages: a third of what small ones cost, and whoever
reads the file later copies twice as fast, too.
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import threading
from pathlib import Path
from typing import Final

from nls_scheduler.units.clock import monotonic_s

_SMALLEST_BYTES = 1 << 26
_MAYMOVE, _FIXED = 1, 2
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
# From Linux 5.14: page tables for a whole range in one call. Earlier ones refuse it, and each page costs a fault.
_POPULATE_WRITE = 23
# From Linux 6.1, for memory files too, "independent of any sysfs setting".
# Source: https://man7.org/linux/man-pages/man2/madvise.2.html
_COLLAPSE = 25
#: A huge page of this kind of processor; with others the small ones are used.
HUGE_BYTES: Final = 1 << 21
_HAS_NONE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EPERM})
_PMD_SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
# One takes 0.1 to 0.4 ms, and saves as much. Where small pages of as much take longer than this, as in a machine
# whose hypervisor gives memory anew, that is what one is worth.
_WORTH_S = 0.001
# The last ones count most.
_SMOOTHED_OVER = 8
_FAILURE_S = 0.02
_AT_MOST_S = 0.05
_AGAIN_S, _PAUSE_S = 0.02, 30.0
_FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
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


class _Patience:
    """For how long it is worth trying to get huge pages.

    Where memory is in pieces, the system moves others first, and where a hypervisor has taken back what was free, it
    gives that anew: both may take longer than a huge page is worth. It may also fail, now and then or each time.
    """

    def __init__(self) -> None:
        self._left_s = _AT_MOST_S if _has_huge_pages() else -math.inf
        self._again_at, self._pause_s = math.inf, _PAUSE_S
        # Seconds for a huge page, and for small ones of as much; until they are known, at their bounds.
        self._huge_s, self._small_s = math.inf, 0.0

    @property
    def is_left(self) -> bool:
        return self._left_s > 0

    def made(self, seconds: float, pages: int) -> None:
        """So many huge pages took so long."""
        self._huge_s = _smoothed(self._huge_s, seconds / pages)
        self.lose(seconds - max(_WORTH_S, self._small_s) * pages)

    def small_ones_took(self, seconds: float, size_bytes: int) -> None:
        """Small pages of as much; there is some patience again where huge ones took less than half of it."""
        self._small_s = _smoothed(self._small_s or math.inf, seconds * HUGE_BYTES / size_bytes)
        if -math.inf < self._left_s <= 0 and 2 * self._huge_s < self._small_s:
            self._left_s = _AGAIN_S

    def lose(self, seconds: float) -> None:
        """So much more was spent than it was worth; less than nothing: patience grows, up to a bound."""
        was_left, self._left_s = self.is_left, min(self._left_s - seconds, _AT_MOST_S)
        if was_left and not self.is_left:
            self._again_at, self._pause_s = monotonic_s() + self._pause_s, 2 * self._pause_s

    def begin(self) -> None:
        """Some patience again, where the last try was some time ago; twice as long as the one before."""
        if -math.inf < self._left_s <= 0 and monotonic_s() >= self._again_at:
            self._left_s = _AGAIN_S


def _smoothed(before: float, now: float) -> float:
    return now if math.isinf(before) else before + (now - before) / _SMOOTHED_OVER


class Window:
    """A shared mapping of a memory file, which grows as the file does.

    Several threads may `touch`, `write` and `allocate_huge`, each places of its own, while none calls `reach` or
    `close`; any may `populate`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._address: int | None = None
        self._size_bytes = 0
        self._moving = threading.Lock()
        # Places that this process has page tables of: to ask for them again takes a fifth of the copy's time.
        self._written: set[int] = set()
        self._process = os.getpid()
        self._patience = _Patience()

    def reach(self, end: int) -> bool:
        """Map at least the first `end` bytes; False where the system refuses, as under a limit of address space."""
        if end <= self._size_bytes:
            return True
        size_bytes = max(_SMALLEST_BYTES, 1 << (end - 1).bit_length())  # beyond the file's end it costs nothing
        with self._moving:
            if (address := _reserved(size_bytes)) is None:
                return False
            if self._address is None:
                protection = mmap.PROT_READ | mmap.PROT_WRITE
                mapped = _libc.mmap(address, size_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, self._fd, 0)
            else:
                mapped = _libc.mremap(self._address, self._size_bytes, size_bytes, _MAYMOVE | _FIXED, address)
            if mapped == _FAILED:
                _libc.munmap(address, size_bytes)
                return False
            self._address, self._size_bytes = address, size_bytes
        return True

    def holds(self, end: int) -> bool:
        """Whether the first `end` bytes were reached."""
        return end <= self._size_bytes

    def touch(self, position: int, size_bytes: int) -> None:
        """Have the page tables of a place on whole pages that was reached, as large as each that begins there."""
        if self._process != (process := os.getpid()):  # a fork has none of them
            self._written, self._process = set(), process
        if self._address is not None and position not in self._written:
            _libc.madvise(self._address + position, size_bytes, _POPULATE_WRITE)
            self._written.add(position)

    def write(self, position: int, content: memoryview) -> None:
        """Copy to places on whole pages that were reached, and touched if it is to be fast; without the GIL."""
        if self._address is None or not self.holds(position + content.nbytes):
            raise ValueError("outside of the window")
        ctypes.memmove(self._address + position, address_of(content), content.nbytes)

    def forget(self, position: int) -> None:
        """The file gives up the place that begins there."""
        self._written.discard(position)

    def populate(self, position: int, size_bytes: int) -> None:
        """Fill in the page tables of a place on whole pages, as far as the system does that in advance."""
        with self._moving:
            if self._address is not None and position + size_bytes <= self._size_bytes:
                _libc.madvise(self._address + position, size_bytes, _POPULATE_WRITE)

    @property
    def has_huge(self) -> bool:
        """Whether the system makes huge pages, and fast enough, as far as it has been asked."""
        return self._patience.is_left

    def begin(self) -> None:
        """A new save: what was too slow some time ago is tried again."""
        self._patience.begin()

    def allocate_huge(self, position: int, size_bytes: int) -> bool:
        """Allocate a place that was reached, as huge pages; False where the system does not make all of them.

        Args:
            position: a multiple of `HUGE_BYTES`, in a part that the file lacks.
            size_bytes: as well.
        """
        if self._address is None or not self.has_huge or not self.holds(position + size_bytes):
            return False
        began = monotonic_s()
        try:
            for end in range(position + HUGE_BYTES, position + size_bytes + 1, HUGE_BYTES):
                os.pwrite(self._fd, b"\0", end - 1)  # there has to be something of it
        except OSError:
            return False
        if _libc.madvise(self._address + position, size_bytes, _COLLAPSE):
            self._patience.lose(math.inf if ctypes.get_errno() in _HAS_NONE else _FAILURE_S)
            return False
        self._patience.made(monotonic_s() - began, size_bytes // HUGE_BYTES)
        return True

    def small_pages_took(self, seconds: float, size_bytes: int) -> None:
        """Tell what so much new memory took without huge pages: what they are worth."""
        self._patience.small_ones_took(seconds, size_bytes)

    def close(self) -> None:
        """Unmap. Idempotent."""
        with self._moving:
            if self._address is not None:
                _libc.munmap(self._address, self._size_bytes)
            self._address, self._size_bytes = None, 0


def _has_huge_pages() -> bool:
    try:
        return int(_PMD_SIZE.read_text()) == HUGE_BYTES
    except (OSError, ValueError):
        return False


def _reserved(size_bytes: int) -> int | None:
    """Addresses that nothing lies at, from where a huge page may begin; `None` where the system refuses."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    found = _libc.mmap(None, size_bytes + HUGE_BYTES, 0, flags, -1, 0)
    if found == _FAILED:
        return None
    address: int = -(-found // HUGE_BYTES) * HUGE_BYTES
    before = address - found
    if before:
        _libc.munmap(found, before)
    _libc.munmap(address + size_bytes, HUGE_BYTES - before)
    return address
