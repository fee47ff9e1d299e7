"""A command in a terminal of its own, for tests: what it shows, keys, resizes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from typing import TYPE_CHECKING, Any, Self

from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CONTROLS = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()].|[=>78])")


class InTerminal:
    """`command` with a pseudo terminal as its controlling one. Use as a context manager.

    Attributes:
        received: all that it wrote.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.master, slave = pty.openpty()
        os.set_blocking(self.master, False)
        self.resize(columns, rows)
        self.before: Any = termios.tcgetattr(slave)
        self.received = b""
        # `setsid` becomes the command: it makes a session whose terminal this is, so that a resize is a signal.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], env=environment, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def read(self) -> str:
        """What it has written since the last `forget`, without control sequences."""
        try:
            while chunk := os.read(self.master, 65536):
                self.received += chunk
        except OSError:  # nothing for now, or it has ended
            pass
        return _CONTROLS.sub("", self.received.decode(errors="replace"))

    def forget(self) -> None:
        """Only what comes from now on counts."""
        self.read()
        self.received = b""

    def shows(self, text: str) -> None:
        """Wait until it does."""

        def seen() -> bool:
            assert self.process.poll() is None or text in self.read(), self.read()
            return text in self.read()

        try:
            wait_until(seen)
        except AssertionError as error:
            raise AssertionError(f"{text!r} is not in:\n{self.read()}") from error

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def ended(self) -> int:
        """Its exit code."""
        wait_until(lambda: (self.read(), self.process.poll())[1] is not None)
        return self.process.wait()
