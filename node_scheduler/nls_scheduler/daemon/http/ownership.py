"""The lock beside a file that one daemon at most may have: its socket, its journal."""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from nls_scheduler.wire.holder import lock_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

log = logging.getLogger(__name__)


class AlreadyRunning(Exception):  # noqa: N818 - says what happened
    """Another daemon serves this socket, or keeps its journal there."""


class Ownership:
    """The lock of a file, held as long as the context lasts; `refusal` says who has it where another daemon does."""

    def __init__(self, path: Path, refusal: Callable[[], str]) -> None:
        """Nothing is locked yet."""
        self._path = lock_of(path)
        self._refusal = refusal
        self._held: int | None = None

    def __enter__(self) -> Self:
        """Lock. Raises AlreadyRunning and OSError."""
        self._held = self._locked()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it up. The file is removed while it is held: whoever waits for it sees another one and opens that."""
        if self._held is not None:
            if self._is_there(self._held):
                self._path.unlink(missing_ok=True)
            os.close(self._held)
            self._held = None

    def keep(self) -> None:
        """Lock anew where the file was removed. Raises AlreadyRunning where another daemon was faster, and OSError."""
        if self._held is None or self._is_there(self._held):
            return
        lost, self._held = self._held, self._locked()
        os.close(lost)
        log.warning("%s was removed and is there again", self._path)

    def _locked(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise AlreadyRunning(self._refusal()) from None
            if self._is_there(descriptor):
                return descriptor
            os.close(descriptor)

    def _is_there(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        return False
