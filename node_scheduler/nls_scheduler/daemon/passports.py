"""What shows that a workload is somebody's whom the daemon has forgotten: a secret that only its submitter was told.

Ids stand in everybody's status. The secret follows from the id, its user and a key in a file of its own beside the
journal: nothing has to be remembered of it, and what is lost with the journal is not lost with it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_KEY_BYTES: Final = 32
log = logging.getLogger(__name__)


class Passports:
    """The secrets of one daemon's workloads, and of those before it that had its key."""

    def __init__(self, path: Path) -> None:
        """`path` is the key's; one that is not there, or no key, is made anew."""
        known = _read(path)
        self._is_new = known is None
        self._key = known or secrets.token_bytes(_KEY_BYTES)
        if self._is_new:
            _write(path, self._key)

    def secret(self, workload: str, owner: int, tenant: str) -> str:
        """For whoever submits `workload`, and nobody else."""
        said = "\0".join((workload, str(owner), tenant)).encode()
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()

    def opens(self, said: object, workload: str, owner: int, tenant: str, *, forgotten: bool) -> bool:
        """Whether `said` is that secret.

        Where the key was lost, too, nobody can have one: a daemon that has made another one asks for none as long as it
        waits for those who run and were `forgotten`.
        """
        if self._is_new and forgotten:
            return True
        return isinstance(said, str) and hmac.compare_digest(
            said.encode(), self.secret(workload, owner, tenant).encode()
        )


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        key = file.read(_KEY_BYTES + 1)
    return key if len(key) == _KEY_BYTES else None


def _write(path: Path, key: bytes) -> None:
    """As a whole or not at all: a daemon may be killed at any moment."""
    draft = path.with_name(f"{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
        draft.replace(path)
    except OSError as error:
        log.warning("the key %s cannot be kept: a daemon after this one asks nobody for a secret (%s)", path, error)
