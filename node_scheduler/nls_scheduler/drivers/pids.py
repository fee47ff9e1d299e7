"""NVML speaks of pids as the node's first pid namespace numbers them; here they become the daemon's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_scheduler.processes.proc import look_up, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_PROC_VARIABLE: Final = "NLS_HOST_PROC"
"""Where the node's own /proc is mounted, for a daemon in a pid namespace of its own."""


class HostPids:
    """Translates by `NSpid` of the node's /proc where that can be seen; without it both namespaces count as one."""

    def __init__(self, host_proc: Path | None) -> None:
        self._host_proc = host_proc
        self._level = None if host_proc is None else len(namespaced_pids(host_proc / "self"))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> HostPids:
        """As `NLS_HOST_PROC` says. Raises ValueError where no process of the node can be seen there."""
        named = environ.get(HOST_PROC_VARIABLE)
        pids = cls(Path(named) if named else None)
        if pids._level == 0:
            raise ValueError(f"{HOST_PROC_VARIABLE}={named} is not the node's /proc: this process is not shown there.")
        return pids

    def local(self, host_pid: int) -> int | None:
        """The pid here; `None` for a process that cannot be seen from here."""
        if self._host_proc is None or self._level is None:
            return host_pid
        pids = namespaced_pids(self._host_proc / str(host_pid))
        if not 0 < self._level <= len(pids):
            return None
        candidate = pids[self._level - 1]
        # Another namespace at the same depth has the same numbers: only the start time tells them apart.
        record = look_up(candidate)
        started = _start_time(self._host_proc / str(host_pid))
        return candidate if record is not None and record.id.start_time == started else None


def namespaced_pids(directory: Path) -> list[int]:
    """The process's pids from the outermost namespace that `directory` shows to its own; none when it is gone."""
    try:
        return [int(pid) for pid in status_of(directory).get("NSpid", ())]
    except OSError:
        return []


def _start_time(directory: Path) -> int | None:
    try:
        return int((directory / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def in_first_namespace() -> bool:
    """Whether this process is in the node's first pid namespace, whose inode number the kernel fixes."""
    return os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC  # noqa: PTH116 - a magic link, not a path
