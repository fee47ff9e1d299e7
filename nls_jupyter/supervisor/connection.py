"""Where a GPU process and its kernel meet: a private directory with a connection file and Unix sockets."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ipykernel.kernelapp import IPKernelApp

from nls_scheduler.processes.whose_files import make_private

# With ipc, a "port" is the end of a socket's file name.
PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
SIGNATURE_SCHEME = "hmac-sha256"
_SOCKET_PREFIX = "s"
_PATH_LIMIT_BYTES = 107


@dataclass(frozen=True, slots=True)
class Connection:
    """What both sides need to know. `key` signs every message."""

    directory: Path
    key: bytes
    file: Path
    """For ipykernel's `-f`."""

    @classmethod
    def create(cls, directory: Path) -> Connection:
        """Make the directory (mode 0700) and the connection file in it (mode 0600).

        Where the sockets' paths would be too long for an address, or are no text, or nothing can be made there, a
        temporary directory takes its place.

        Raises:
            OSError: neither can be made.
        """
        if not _fits(directory):
            if directory.exists():
                directory.rmdir()
            return cls._in(_temporary_directory())
        try:
            make_private(directory)
            directory.chmod(0o700)
            return cls._in(directory.absolute())
        except OSError:
            return cls._in(_temporary_directory())

    @classmethod
    def _in(cls, directory: Path) -> Connection:
        """With the file in a directory of ours, of which nothing is left where it cannot be written."""
        self = cls(directory, os.urandom(32).hex().encode(), directory / _file_name())
        try:
            descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(self._content(), file)
        except FileExistsError:
            raise  # somebody else's directory
        except OSError:
            self.remove()
            raise
        return self

    def remove(self) -> None:
        """Before a process has made its sockets there; also where this one can open no more files."""
        self.file.unlink(missing_ok=True)
        with suppress(OSError):
            self.directory.rmdir()

    def address(self, channel: str) -> str:
        """ZeroMQ's address of a channel."""
        return f"ipc://{self.directory / _SOCKET_PREFIX}-{PORTS[channel]}"

    def _content(self) -> dict[str, str | int]:
        return {
            "transport": "ipc",
            "ip": str(self.directory / _SOCKET_PREFIX),
            "key": self.key.decode(),
            "signature_scheme": SIGNATURE_SCHEME,
            **{f"{channel}_port": port for channel, port in PORTS.items()},
        }


def _file_name() -> str:
    """As the notebook's own kernel calls its file: code that cells run finds their kernel's session by that name."""
    own = IPKernelApp.instance().connection_file if IPKernelApp.initialized() else ""
    return Path(own).name or "connection.json"


def _temporary_directory() -> Path:
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="nls-", dir=parent if _fits(Path(parent) / "nls-12345678") else "/tmp"))  # noqa: S108


def _fits(directory: Path) -> bool:
    longest = directory / f"{_SOCKET_PREFIX}-{max(PORTS.values())}"
    try:
        return len(str(longest.absolute()).encode()) <= _PATH_LIMIT_BYTES
    except UnicodeEncodeError:
        return False  # ZeroMQ takes text
