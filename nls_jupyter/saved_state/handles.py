"""What seems to belong to its process, and can be had again in another one: streams, files that are read, free locks.

Queues, events, conditions and semaphores consist of locks and ordinary objects.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import threading
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import RLOCK_IS_OWNED
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STREAMS = ("stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__")
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
# So much of a text is looked at for line ends that `open` may or may not have been told to translate.
_LOOKED_AT_BYTES = 1 << 16
_LOCK: type = type(threading.Lock())
_RLOCK: type = type(threading.RLock())


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Base classes and the reducers of all their instances."""
    yield from ((kind, _reduce_file) for kind in streams())
    yield _LOCK, _reduce_lock
    yield _RLOCK, _reduce_reentrant_lock


def streams() -> tuple[type, ...]:
    """Classes of files, and of what notebooks have in the place of `sys.stdout`."""
    notebooks = sys.modules.get("ipykernel.iostream")
    return (*_FILES, *((notebooks.OutStream,) if notebooks is not None else ()))


def is_standard(stream: Any) -> bool:
    """Whether it is one of the streams that every process has."""
    return any(getattr(sys, name) is stream for name in _STREAMS)


def load_stream(name: str) -> Any:
    """This process's own."""
    return getattr(sys, name)


def _reduce_file(file: Any) -> Any:
    for name in _STREAMS:
        if getattr(sys, name) is file:
            return load_stream, (name,)
    text = (file.encoding, file.errors) if type(file) is io.TextIOWrapper else None
    if type(file) in _FILES and file.closed and type(_raw_of(file)) is io.FileIO:
        mode = _raw_of(file).mode if text is None else getattr(file, "mode", "r")
        return closed_file, (file.name, mode, text, type(file) is not io.FileIO)
    if type(file) not in {io.TextIOWrapper, io.BufferedReader} or file.closed or not _is_only_read(file):
        raise UnsavableError("an open file", file)
    path = os.path.abspath(file.name)  # noqa: PTH100 - a name may be bytes
    status = os.fstat(file.fileno())
    known = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if text is not None and b"\r" in os.pread(file.fileno(), _LOOKED_AT_BYTES, 0):
        raise UnsavableError("an open file with line ends that nobody can ask it about", file)
    return open_again, (file.name, path, _position_of(file), text, known)


def _raw_of(file: Any) -> Any:
    """What reads and writes for it; what is unpacked while it is read, or lies in memory, has no place of its own."""
    return getattr(getattr(file, "buffer", file), "raw", file)


def closed_file(name: Any, mode: str, text: tuple[str, str] | None, is_buffered: bool) -> Any:  # noqa: FBT001 - in streams
    """One that its user has closed, whatever has become of the file since."""
    how: dict[str, Any] = {} if text is None else {"encoding": text[0], "errors": text[1]}
    buffering = -1 if is_buffered else 0
    file: Any
    with open(os.devnull, mode, buffering, opener=lambda path, _: os.open(path, os.O_RDWR), **how) as file:
        _raw_of(file).name = name
    return file


def _is_only_read(file: Any) -> bool:
    """From a file of the disk that still has the name under which it was opened."""
    raw = _raw_of(file)
    if type(raw) is not io.FileIO or not file.seekable() or file.writable() or not isinstance(raw.name, (str, bytes)):
        return False
    status = os.fstat(file.fileno())
    try:
        same = os.path.samestat(status, os.stat(file.name))  # noqa: PTH116 - a name may be bytes
    except OSError:
        return False
    return same and stat.S_ISREG(status.st_mode)


def _position_of(file: Any) -> int:
    try:
        position: int = file.tell()
    except OSError as error:  # in the middle of `for line in file`
        raise UnsavableError("a file that is read by a loop", file) from error
    return position


def open_again(name: Any, path: Any, position: int, text: tuple[str, str] | None, known: tuple[int, ...]) -> Any:
    """A file that was read, where it was read to. Raises OSError where it is gone or another one.

    `name` is what it was opened by, perhaps in another folder.
    """
    status = os.stat(path)  # noqa: PTH116 - a name may be bytes
    if (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) != known:
        raise OSError(f"{os.fsdecode(path)} has changed since it was opened")
    how: dict[str, Any] = {"mode": "rb"} if text is None else {"encoding": text[0], "errors": text[1]}
    # Whoever reads it closes it, as before.
    file: Any = open(name, opener=lambda _, flags: os.open(path, flags), **how)  # noqa: SIM115
    file.seek(position)
    return file


def _reduce_lock(lock: Any) -> Any:
    if lock.locked():
        raise UnsavableError("a lock that is taken", lock)
    return threading.Lock, ()


def _reduce_reentrant_lock(lock: Any) -> Any:
    # Nobody can ask one whether another thread has it.
    if RLOCK_IS_OWNED.of(lock)() or not lock.acquire(blocking=False):
        raise UnsavableError("a lock that is taken", lock)
    lock.release()
    return threading.RLock, ()
