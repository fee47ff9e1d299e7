"""A user's own files in a folder on a volume, where others may have put something: never followed nor waited for."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from nls_scheduler.processes.whose_files import others_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Content = TypeVar("_Content")


class KeptStateError(Exception):
    """A clause that says what could not be written or read, and why."""


def new(own: int, name: str) -> TextIO:
    """To write, in place of whatever has that name. It is locked as long as it is open, where the volume has locks."""
    remove(own, name)
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=own)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return os.fdopen(descriptor, "w", encoding="utf-8")


def remove(own: int, name: str) -> None:
    """Whether or not it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=own)


def remove_unlocked(own: int, name: str) -> None:
    """As far as that can be done, and unless somebody who lives writes it (`new`)."""
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=own, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and _is_locked(own, name):
            return
        os.unlink(name, dir_fd=own)


def _is_locked(own: int, name: str) -> bool:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=own)
    try:
        return is_written(descriptor)
    finally:
        os.close(descriptor)


def is_written(descriptor: int) -> bool:
    """Whether somebody who lives writes this file (`new`); never known on a volume without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def read(own: int, place: Path, name: str, made: Callable[[Any, TextIO], _Content]) -> _Content | None:
    """What `made` makes of its content and of the open file; `None` where it is missing."""
    try:
        with os.fdopen(open_own(own, name, place), encoding="utf-8") as file:
            return made(json.load(file), file)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeptStateError(f"{place / name} cannot be understood ({error!r})") from error


def open_own(own: int, name: str, place: Path) -> int:
    """Raises KeptStateError for what is no plain file, or not only the user's."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=own)
    try:
        refuse_others(descriptor, place / name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_others(descriptor: int, place: Path) -> None:
    """To load such a file is to run code: whoever can write it decides which."""
    status = os.fstat(descriptor)
    is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    if not (is_plain or stat.S_ISDIR(status.st_mode)):
        raise KeptStateError(f"{place} is not a plain file with one name, so that it is not loaded")
    if status.st_uid != os.geteuid():
        raise KeptStateError(f"{place} belongs to another user, so that it is not loaded")
    if others_write(descriptor, status):  # a pod's `fsGroup`, in which nobody else is, may
        raise KeptStateError(f"{place} can be written by other users, so that it is not loaded; chmod go-w mends that")


def refuse_unusable(folder: Path) -> None:
    """Raises KeptStateError where nothing can be made in it, or it cannot be made in its parent."""
    with told(folder):
        place = folder if os.path.lexists(folder) else folder.parent
        if not stat.S_ISDIR(place.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
            refused = errno.EROFS if os.statvfs(place).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(refused, os.strerror(refused))


@contextlib.contextmanager
def told(place: Path) -> Iterator[None]:
    """What the system refuses, as a clause."""
    try:
        yield
    except OSError as error:
        full = f"{place} is full" if error.errno in _FULL else f"{place} cannot be used: {error.strerror}"
        raise KeptStateError(full) from error
