"""Where a process is in the cgroup v2 hierarchy; a cgroup of its own for each GPU process and command, where we may."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path("/sys/fs/cgroup")
_BESIDE_VERSION_1: Final = "unified"
_OURS: Final = "nls-"


def cgroup_of(pid: int, mount: Path | None = None) -> Path | None:
    """The process's cgroup v2 directory as seen from here; `None` where there is none, or it lies out of sight."""
    try:
        lines = os.fsdecode(Path(f"/proc/{pid}/cgroup").read_bytes()).split("\n")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    where = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    # A process of another cgroup namespace is shown with `..`, which leads nowhere in our mount.
    if where is None or ".." in Path(where).parts:
        return None
    directory = (mount or ROOT) / where
    return directory if (directory / "cgroup.controllers").is_file() else None


def make_for(name: str, above: Path | None = None) -> Path | None:
    """A new, empty cgroup below our own (or `above`) for what is started for the workload `name`.

    A guardian deletes it.

    `None` where none can be made (nobody delegated any to us), or where it could not be killed at once (before Linux
    5.14): there the guardians do alone.
    """
    above = above or cgroup_of(os.getpid(), root())
    # Who moves a process must be allowed to take it out of the cgroup above.
    if above is None or not os.access(above / "cgroup.procs", os.W_OK):
        return None
    directory = above / f"{_prefix(name)}{secrets.token_hex(4)}"
    try:
        directory.mkdir()
    except OSError:
        return None
    if not (directory / "cgroup.kill").exists():
        directory.rmdir()
        return None
    return directory


def made_for(name: str, owner: int) -> list[Path]:
    """The cgroups that this user's `make_for` made, wherever they are, and that are still there.

    Anybody may use the name, but what is in a user's own cgroup is that user's to kill.
    """
    found = []
    for directory, names, _ in os.walk(root()):
        for path in (Path(directory, below) for below in names if below.startswith(_prefix(name))):
            with suppress(FileNotFoundError):
                if path.stat().st_uid == owner:
                    found.append(path)
    return found


def named_like(names: Iterable[str]) -> set[str]:
    """Those of `names` for which `make_for` may have made cgroups that are still there."""
    there = [below for _, directories, _ in os.walk(root()) for below in directories if below.startswith(_OURS)]
    return {name for name in names if any(below.startswith(_prefix(name)) for below in there)}


def members(cgroup: Path) -> set[int]:
    """The pids in a cgroup and those below it, as far as they can be seen from here."""
    pids: set[int] = set()
    for directory, _, _ in os.walk(cgroup):
        with suppress(OSError):  # it was deleted in between
            pids |= {int(pid) for pid in Path(directory, "cgroup.procs").read_text(encoding="ascii").split()}
    return pids - {0}


def root() -> Path:
    """Where cgroup v2 is mounted: alone, or beside version 1."""
    beside = ROOT / _BESIDE_VERSION_1
    return beside if (beside / "cgroup.procs").exists() else ROOT


def _prefix(name: str) -> str:
    return f"{_OURS}{name}-"
