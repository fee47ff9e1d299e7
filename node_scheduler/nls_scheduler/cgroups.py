"""Where a process is in the cgroup v2 hierarchy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")


def cgroup_of(pid: int) -> Path | None:
    """The process's cgroup v2 directory as seen from here; `None` where there is none, or it lies out of sight."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    where = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    # A process of another cgroup namespace is shown with `..`, which leads nowhere in our mount.
    if where is None or ".." in Path(where).parts:
        return None
    directory = ROOT / where
    return directory if (directory / "cgroup.controllers").is_file() else None
