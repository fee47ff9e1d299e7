"""A daemon and kernels that the cases of one group share, and nothing of them afterwards."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cases import Cell
from daemon_process import DaemonProcess
from kernels import Kernel, Mode, environment_for
from leftovers import MARK, marked_processes, wait_until_none

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Bench:
    """Kernels by mode, started at their first use; the next group, or a case after one that broke, gets new ones."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mark = uuid.uuid4().hex
        self._numbers = 0
        self._stack = ExitStack()
        self._kernels: dict[str, Kernel] = {}
        self._group = ""
        self._seen: dict[str, list[str]] = {}

    def __enter__(self) -> Bench:
        self._daemon = self._stack.enter_context(DaemonProcess(self._directory, "1x16GiB"))
        return self

    def __exit__(self, *_: object) -> None:
        self.drop_all()
        self._stack.close()
        wait_until_none("processes", lambda: marked_processes(self._mark))

    def environment(self) -> dict[str, str]:
        """For a kernel of this bench."""
        return environment_for(self._daemon.environment, self._directory, **{MARK: self._mark})

    def once(self, name: str, look: Callable[[], list[str]]) -> list[str]:
        """What `look` sees, which is called for the first of those who ask for `name`."""
        if name not in self._seen:
            self._seen[name] = look()
        return self._seen[name]

    def directory_for(self, name: str) -> Path:
        """A new one below the bench's own."""
        directory = self._directory / name
        directory.mkdir()
        return directory

    def kernel(self, mode: Mode, group: str, setup: str) -> Kernel:
        """The one of this mode for this group of cases; `setup` is the first cell of each."""
        if group != self._group:
            self.drop_all()
            self._group = group
        if mode.name not in self._kernels:
            self._numbers += 1
            kernel = Kernel(mode, self.environment(), self._directory / f"{self._numbers}")
            self._kernels[mode.name] = kernel.__enter__()
            assert kernel.run(Cell(setup)).reply["status"] == "ok"
        return self._kernels[mode.name]

    def drop(self, name: str) -> None:
        """End the kernel of this mode, if there is one."""
        if name in self._kernels:
            self._kernels.pop(name).__exit__()

    def drop_all(self) -> None:
        """End all kernels."""
        for name in list(self._kernels):
            self.drop(name)
