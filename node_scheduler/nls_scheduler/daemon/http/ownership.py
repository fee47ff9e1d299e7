"""The locks of what one daemon at most may have: its socket, and the folder of its journal."""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from nls_scheduler.wire.holder import locked_by

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

log = logging.getLogger(__name__)


class AlreadyRunning(Exception):  # noqa: N818 - says what happened
    """Another daemon serves this socket, or keeps its journal there."""


class Ownership:
    """A lock, held as long as the context lasts; `refusal` says who has it where another daemon does."""

    def __init__(self, path: Path, refusal: Callable[[], str]) -> None:
        """`path` is a file that is made, and that only its owner can lock, or a folder, in which nothing has to stay.

        Who may read a folder can lock it: there only a daemon counts that one sees. Nothing is locked yet.
        """
        self._path = path
        self._refusal = refusal
        self._held: int | None = None

    def __enter__(self) -> Self:
        """Lock. Raises AlreadyRunning and OSError."""
        self._held = self._locked()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it up. A file is removed while it is held: whoever waits for it sees another one and opens that."""
        if self._held is not None:
            if not self._path.is_dir() and self._is_there(self._held):
                self._path.unlink(missing_ok=True)
            os.close(self._held)
            self._held = None

    def keep(self) -> None:
        """Lock anew where the file was removed. Raises AlreadyRunning where another daemon was faster, and OSError."""
        if self._held is None:
            return
        if self._is_there(self._held):
            self._lock(self._held)
            return
        lost, self._held = self._held, self._locked()
        os.close(lost)
        log.warning("%s was removed and is there again", self._path)

    def _locked(self) -> int:
        while True:
            way = os.O_RDONLY if self._path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(self._path, way | os.O_CLOEXEC, 0o600)
            try:
                self._lock(descriptor)
            except AlreadyRunning:
                os.close(descriptor)
                raise
            if self._is_there(descriptor):
                return descriptor
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not self._path.is_dir() or locked_by(self._path) is not None:
                raise AlreadyRunning(self._refusal()) from None

    def _is_there(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        return False
