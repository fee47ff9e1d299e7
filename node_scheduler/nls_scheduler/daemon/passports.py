"""What shows that a workload is somebody's whom the daemon has forgotten: a secret that only its supervisor was told.

Ids stand in everybody's status. The secret follows from the id, its user and a key in a file of its own beside the
journal: nothing has to be remembered of it, and what is lost with the journal is not lost with it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_KEY_BYTES: Final = 32
log = logging.getLogger(__name__)


class Passports:
    """The secrets of one daemon's workloads, and of those before it that had its key.

    Attributes:
        key_is_new: whether nobody who ran before this daemon can have a secret, since the key was lost as well.
    """

    def __init__(self, path: Path) -> None:
        """`path` is the key's; one that is not there, or no key, is made anew."""
        known = _read(path)
        self.key_is_new = known is None
        self._path = path
        self._key = known or secrets.token_bytes(_KEY_BYTES)
        self._told = ""
        if self.key_is_new:
            self._write()

    def keep(self) -> None:
        """Write the key again where somebody has deleted or replaced it: the next daemon needs it."""
        if _read(self._path) != self._key and self._write():
            log.warning("the key %s was removed or replaced, and is there again", self._path)

    def secret(self, workload: str, owner: int, tenant: str) -> str:
        """For whoever supervises `workload`, and nobody else."""
        said = "\0".join((workload, str(owner), tenant)).encode()
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()

    def opens(self, said: object, workload: str, owner: int, tenant: str) -> bool:
        """Whether `said` is that secret."""
        secret = self.secret(workload, owner, tenant)
        return isinstance(said, str) and said.isascii() and hmac.compare_digest(said, secret)

    def mark(self, workload: str) -> str:
        """For the processes that are started for `workload`: by it a later daemon knows that an earlier one knew it."""
        return hmac.new(self._key, f"started for {workload}".encode(), hashlib.sha256).hexdigest()

    def made(self, mark: str, workload: str) -> bool:
        """Whether `mark` is that one, or cannot be told from it since the key was lost."""
        return self.key_is_new or (mark.isascii() and hmac.compare_digest(mark, self.mark(workload)))

    def _write(self) -> bool:
        """As a whole or not at all: a daemon may be killed at any moment. Why it cannot be is told once."""
        draft = self._path.with_name(f"{self._path.name}.new")
        try:
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._key)
            draft.replace(self._path)
        except OSError as error:
            told = f"the key {self._path} cannot be kept: a daemon after this one asks nobody for a secret ({error})"
            if told != self._told:
                log.warning("%s", told)
            self._told = told
            return False
        self._told = ""
        return True


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        key = os.read(descriptor, _KEY_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return key if len(key) == _KEY_BYTES else None
