"""The environment with which a process began, for whoever may trace it: file modes are not asked.

`/proc/PID/environ` is the process's user's alone (0400), and to open another user's takes a right to read everybody's
files. What it shows is in the process's memory, which who has CAP_SYS_PTRACE may read (process_vm_readv(2)).
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, Final

_BOUNDS: Final = slice(47, 49)
"""Fields 50 and 51 of `/proc/PID/stat` (proc(5)), counted from behind the name, which is its second."""


class _Part(ctypes.Structure):
    """A struct iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t))


def environment_of(pid: int, limit_bytes: int) -> bytes:
    """Its first `limit_bytes`, a zero byte after each variable; nothing where it has gone, or may not be read."""
    directory = Path(f"/proc/{pid}")
    try:
        with (directory / "environ").open("rb") as file:
            return file.read(limit_bytes)
    except PermissionError:
        return _in_memory(pid, directory, limit_bytes)
    except OSError:
        return b""


def _in_memory(pid: int, directory: Path, limit_bytes: int) -> bytes:
    try:
        fields = (directory / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return b""
    start, end = (int(word) for word in fields[_BOUNDS])  # zeros for whoever may not know
    size_bytes = min(end - start, limit_bytes)
    if size_bytes <= 0:
        return b""
    copy = ctypes.create_string_buffer(size_bytes)
    here, there = _Part(ctypes.addressof(copy), size_bytes), _Part(start, size_bytes)
    one, no_flags = ctypes.c_ulong(1), ctypes.c_ulong(0)
    count = _process_vm_readv()(ctypes.c_int(pid), ctypes.byref(here), one, ctypes.byref(there), one, no_flags)
    return copy.raw[: max(0, count)]


@functools.cache
def _process_vm_readv() -> Any:
    read = ctypes.CDLL(None).process_vm_readv
    read.restype = ctypes.c_ssize_t
    return read
