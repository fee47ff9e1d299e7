"""What a test may have left behind: processes, sockets, files."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

# In the environment of each process that a test starts.
MARK = "NLS_TEST_MARK"
GONE_WITHIN_S = 15.0
PAUSE_S = 0.005


def marked_processes(mark: str) -> dict[int, str]:
    """Command line by pid of the living processes, other than this one, whose environment holds the mark."""
    needle = f"{MARK}={mark}".encode()
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if int(directory.name) != os.getpid() and needle in (directory / "environ").read_bytes().split(b"\0"):
                found[int(directory.name)] = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def living(family: Mapping[int, int]) -> list[str]:
    """Those of a family (start time by pid, see `guardian.descendants`) that live, as the kernel tells of them.

    A process without the mark is found too: one whose environment was emptied.
    """
    found = []
    for pid, start_time in family.items():
        with suppress(FileNotFoundError, ProcessLookupError):
            stat, command_line = Path(f"/proc/{pid}/stat").read_text(), Path(f"/proc/{pid}/cmdline").read_bytes()
            fields = stat.rpartition(")")[2].split()
            if int(fields[19]) == start_time and fields[0] not in "ZX":
                found.append(f"{command_line!r} {stat}")
    return found


def named_or_socket(directory: Path) -> set[Path]:
    """Sockets in a directory, and whatever bears our name."""
    found = set()
    for path in directory.rglob("*"):
        try:
            if path.name.startswith("nls") or stat.S_ISSOCK(path.lstat().st_mode):
                found.add(path)
        except FileNotFoundError:
            continue
    return found


def wait_until_none(what: str, find: Callable[[], Collection[object]], timeout_s: float = GONE_WITHIN_S) -> None:
    """Until `find` finds nothing; fails with what is left."""
    deadline = time.monotonic() + timeout_s
    while left := find():
        assert time.monotonic() < deadline, f"{what} left after {timeout_s:g} s: {left}"
        time.sleep(PAUSE_S)
