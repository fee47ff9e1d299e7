"""The journal's files on the disk: whether somebody else has deleted, cut or replaced one under the daemon."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nls_scheduler.daemon.journal_retention import drop_damaged_copies

if TYPE_CHECKING:
    from pathlib import Path

_EXTRAS: Final = ("-wal", "-shm")
_NO_FILE: Final = (0, 0, 0)


class JournalFiles:
    """The database at `path` with the two files that SQLite keeps beside it in WAL mode.

    SQLite itself notices nothing: it goes on in a file that is deleted, and one that is cut ends the process (SIGBUS)
    where it is mapped, as `-shm` is. A heap in its place (`locking_mode = EXCLUSIVE`) would lock `nls replay` out. So
    who writes asks before each write, and remembers after it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[int, int, int]] = {}

    def remember(self) -> None:
        """They are now as their owner has left them; what has gone or is another file since was harmed just then."""
        for extra in ("", *_EXTRAS):
            known, now = self._known.get(extra), self._look(extra)
            if now is not None and (known is None or now[:2] == known[:2]):
                self._known[extra] = now
            elif known is None and not extra:
                self._known[extra] = _NO_FILE

    def harm(self) -> str | None:
        """What somebody else has done to them since, as the end of a sentence; `None`: nothing."""
        for extra, known in self._known.items():
            now, name = self._look(extra), f"{self._path}{extra}"
            if now is None:
                return f"{name} was deleted"
            if now[:2] != known[:2] or (not extra and now[2] > known[2]):
                return f"{name} was replaced"
            if now[2] < known[2]:
                return f"{name} was cut"
        return None

    def prepare_to_close(self) -> None:
        """SQLite looks at `-shm` once more when it closes: what was cut of it is there again, as zeros."""
        known, now = self._known.get("-shm"), self._look("-shm")
        if known and now and now[:2] == known[:2] and now[2] < known[2]:
            with suppress(OSError):
                os.truncate(f"{self._path}-shm", known[2])
        self._known = {}

    def set_aside(self, size_bytes: int) -> Path | None:
        """Make room for a new journal; an old one, where there is one, is kept for whoever wants to look.

        All that are kept so take no more than `size_bytes`. What is no file is none. Raises OSError; a directory that
        is not empty stays.
        """
        aside = self._path.with_name(f"{self._path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
        try:
            mode = self._path.lstat().st_mode
        except FileNotFoundError:
            mode = 0
        if stat.S_ISREG(mode):
            self._path.rename(aside)
            aside.chmod(0o600)  # a daemon starts in no folder in which others may write anything of its
        elif stat.S_ISDIR(mode):
            self._path.rmdir()
        else:
            self._path.unlink(missing_ok=True)
        for extra in _EXTRAS:
            self._path.with_name(self._path.name + extra).unlink(missing_ok=True)
        drop_damaged_copies(self._path, size_bytes, aside)
        return aside if stat.S_ISREG(mode) else None

    def _look(self, extra: str) -> tuple[int, int, int] | None:
        try:
            seen = os.stat(f"{self._path}{extra}")  # noqa: PTH116  # twice in each step
        except OSError:
            return None
        return seen.st_dev, seen.st_ino, seen.st_size
