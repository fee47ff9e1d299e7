"""The file of an observation: one line of JSON for each fact, written when it is known and never changed.

First its version; then a line for each session or process that has ended and for each cell of one; now and then
what is open, so that whatever stops the observation loses minutes at most. It is bounded: of one that has grown too
large the older half is left out. Names are hashed with a key that lies beside the file, for its owner only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from contextlib import contextmanager, suppress
from itertools import count
from typing import IO, TYPE_CHECKING, Any, Final

from nls_scheduler.what_if.workload_file.rows import WorkloadFileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION: Final = 1
MARK: Final = "nls-observation"
MOST_BYTES: Final = 64 * 2**20
MOST_IN_A_LINE: Final = 2**24
"""Of a hundred thousand open sessions."""
_KEY_BYTES: Final = 32


def is_observation(path: Path) -> bool:
    """Whether a file begins as one does. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MARK) + 2).startswith(b'{"' + MARK.encode())


class Recorder:
    """Appends to an observation; goes on where one was left. Use as a context manager. Raises OSError."""

    def __init__(self, path: Path, *, names: bool, most_bytes: int = MOST_BYTES) -> None:
        """Raises WorkloadFileError where `path` is something else. `names`: as they are, not hashed."""
        self._path = path
        self._most_bytes = most_bytes
        if path.exists() and not path.is_file():
            raise WorkloadFileError(f"{path} is no file that can be written to and read again.")
        if path.exists() and path.stat().st_size and not is_observation(path):
            raise WorkloadFileError(f"{path} is no observation: choose another file for --to.")
        self._file: IO[str] = _opened(path)
        try:
            with _about(path):
                self._key = None if names else _key_beside(path)
                _cut_half_a_line(path)
                self._file.seek(0, os.SEEK_END)
                if not self._file.tell():
                    self._append({MARK: VERSION})
        except BaseException:
            with suppress(OSError):  # it would be written once more
                self._file.close()
            raise

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        with _about(self._path):
            self._file.close()

    def name_of(self, name: str) -> str:
        """As it is written: the same for the same name, which nobody can tell from it without the key."""
        if self._key is None:
            return name
        return hashlib.blake2b(name.encode(), key=self._key, digest_size=6).hexdigest()

    def write(self, fact: dict[str, Any]) -> None:
        """One fact, on the disk when this returns."""
        with _about(self._path):
            self._append(fact)
            if self._file.tell() > self._most_bytes:
                self._forget_the_older_half()

    def _append(self, fact: dict[str, Any]) -> None:
        self._file.write(json.dumps(fact, separators=(",", ":")) + "\n")
        self._file.flush()

    def _forget_the_older_half(self) -> None:
        """Into a file beside it that takes its place: whoever stops us leaves one or the other."""
        self._file.close()
        beside = self._path.with_name(self._path.name + ".new")
        beside.unlink(missing_ok=True)  # of one that was killed, or whatever else has the name
        with self._path.open("rb") as old, _opened(beside, os.O_EXCL) as new:
            new.write(json.dumps({MARK: VERSION}, separators=(",", ":")) + "\n")
            old.seek(self._most_bytes // 2)
            old.readline()
            for line in old:
                new.write(line.decode("utf-8"))
        beside.replace(self._path)
        self._file = _opened(self._path)


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """An error while something is written says where."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from error


def _opened(path: Path, way: int = 0) -> IO[str]:
    """To append to, for its owner only. Raises WorkloadFileError where another observation writes there."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | way, 0o600), "a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise WorkloadFileError(f"Another nls observe writes to {path}: choose another file for --to.") from None
    return file


def _key_beside(path: Path) -> bytes:
    key_path = path.with_name(path.name + ".key")
    if key_path.exists() and not key_path.is_file():
        raise WorkloadFileError(f"{key_path} is no file, and no key of an observation.")
    try:
        with os.fdopen(os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    except FileExistsError:
        pass
    except OSError:
        key_path.unlink(missing_ok=True)  # a part of a key is none
        raise
    key = key_path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise WorkloadFileError(f"{key_path} is no key of an observation: remove it, and names are hashed anew.")
    return key


def _cut_half_a_line(path: Path) -> None:
    """What was being written when the machine went down is no fact."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        at = end
        while at:
            begin = max(0, at - 4096)
            file.seek(begin)
            newline = file.read(at - begin).rfind(b"\n")
            if newline >= 0:
                file.truncate(begin + newline + 1)
                return
            at = begin
        file.truncate(0)


def _refused(constant: str) -> None:
    """Infinity and NaN are no figures of a fact."""
    raise ValueError(constant)


def facts_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Its facts with their rows. Raises WorkloadFileError; half a line at its end is no fact yet."""
    with path.open("rb") as file:
        for number in count(1):
            if not (line := file.readline(MOST_IN_A_LINE)):
                return
            if len(line) == MOST_IN_A_LINE and not line.endswith(b"\n"):
                raise WorkloadFileError(f"Row {number}: it is longer than any line of an observation.")
            if not line.endswith(b"\n"):
                return
            try:
                fact = json.loads(line, parse_constant=_refused)
            except (ValueError, RecursionError):
                raise WorkloadFileError(f"Row {number}: it is no line of an observation; was it cut off?") from None
            if not isinstance(fact, dict):
                raise WorkloadFileError(f"Row {number}: it is no fact of an observation.")
            if number == 1 and fact.get(MARK) != VERSION:
                version = str(fact.get(MARK))[:20]
                raise WorkloadFileError(
                    f"It is an observation of version {version}, and this nls reads version {VERSION}."
                )
            yield number, fact
