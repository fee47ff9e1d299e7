"""How much host memory is left, and how much of it one process has taken."""

from __future__ import annotations

from pathlib import Path

from nls_jupyter.saved_state.room import cgroup_entries, machine_left_bytes

_CGROUPS = Path("/sys/fs/cgroup")


def left_bytes(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> int:
    """What this machine, or the narrowest cgroup that this process is in, can still give. Raises `OSError`."""
    return min([machine_left_bytes(proc), *(left for left, _ in _left_in_cgroups(proc, cgroups))])


def container_room(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> tuple[int, int] | None:
    """What the narrowest cgroup that limits this process can still give, and its limit, in bytes; `None`: none does.

    Raises `OSError`.
    """
    return min(_left_in_cgroups(proc, cgroups), default=None)


def own_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """What a process has for itself: without pages of files, which others share and the system can take back.

    Raises `OSError` when it is gone.
    """
    fields = _fields(proc / str(pid) / "status")
    return fields.get("RssAnon", 0) + fields.get("RssShmem", 0)


def _fields(file: Path) -> dict[str, int]:
    """Lines such as `MemAvailable:  123 kB`, in bytes."""
    # A line feed alone ends a line, and a process may call itself what it likes.
    lines = (line.split() for line in file.read_bytes().split(b"\n"))
    in_kib = (words for words in lines if words[2:] == [b"kB"] and words[1].isdigit())
    return {words[0].decode().rstrip(":"): int(words[1]) << 10 for words in in_kib}


def _left_in_cgroups(proc: Path, cgroups: Path) -> list[tuple[int, int]]:
    found = []
    for controllers, path in cgroup_entries(proc):
        if controllers == "":
            found += _left_up_to(cgroups, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += _left_up_to(cgroups / "memory", path, *names)
    return found


def _left_up_to(root: Path, path: str, limit_file: str, usage_file: str, reclaimable: str) -> list[tuple[int, int]]:
    """In the cgroup and those around it; in a container they are seen at the root, whatever the path says."""
    group = root / path.lstrip("/")
    found = []
    for directory in (group, *group.parents):
        if not directory.is_relative_to(root):
            break
        left = _left_in(directory, limit_file, usage_file, reclaimable)
        if left is not None:
            found.append(left)
    return found


def _left_in(group: Path, limit_file: str, usage_file: str, reclaimable: str) -> tuple[int, int] | None:
    try:
        limit, usage = (group / limit_file).read_text().strip(), int((group / usage_file).read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (FileNotFoundError, NotADirectoryError):
        return None  # a cgroup without this controller, or a path of another namespace
    if limit == "max":
        return None
    return max(0, int(limit) - usage + int(statistics.get(reclaimable, 0))), int(limit)
