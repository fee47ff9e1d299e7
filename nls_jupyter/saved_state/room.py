"""How much room there is: what the machine's memory, or a cgroup's, has left, what a process has, a spill folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the notebook itself, its kernel and the neighbours need to go on, as part of what is left.
_LEFT_FOR_OTHERS = 0.1
# Of a cgroup's limit, what no saved state takes: below it, the memory guard drops what is saved.
LOW = 0.08
_UNLIMITED = 1 << 60
# Per version of cgroups, 2 and 1: limit, usage, and the field of memory.stat with what can be dropped at once.
_NAMES = {
    False: ("memory.max", "memory.current", "inactive_file"),
    True: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


class MachineRoom:
    """Room on this machine.

    Args:
        spill_folder: where a nameless file may take what does not fit in memory; `None` for nowhere.
        memory_limit_bytes: a saved state never takes more memory than this; `None` for what is there.
        system: the root of the file system, for tests.
    """

    def __init__(
        self, spill_folder: Path | None = None, memory_limit_bytes: int | None = None, system: Path = Path("/")
    ) -> None:
        self._spill_folder = spill_folder
        self._memory_limit_bytes = memory_limit_bytes
        self._system = system
        self.why_no_spill = "no spill folder is set"

    def memory_bytes(self, held_bytes: int = 0) -> int:
        """What memory has left: the machine's, or less where a cgroup's or our own limit is nearer. Raises OSError."""
        rooms = list(_rooms_of_cgroups(self._system))
        least = min([_machine_left_bytes(self._system / "proc"), *(left for left, _ in rooms)])
        may_take = [int(least * (1 - _LEFT_FOR_OTHERS)), *(left - int(LOW * limit) for left, limit in rooms)]
        if self._memory_limit_bytes is not None:
            may_take.append(self._memory_limit_bytes - held_bytes)
        return max(0, min(may_take))

    def open_spill(self) -> int | None:
        """A file without a name, which vanishes with its last descriptor, also when everybody is killed."""
        if self._spill_folder is None:
            return None
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | os.O_EXCL
        try:
            return os.open(self._spill_folder, flags, 0o600)
        except OSError as error:
            self.why_no_spill = f"the spill folder {self._spill_folder} cannot be used: {error.strerror}"
            return None

    def spill_bytes(self, fd: int) -> int:
        """What the spill file's disk has left for ordinary users."""
        disk = os.fstatvfs(fd)
        return disk.f_bavail * disk.f_frsize


def memory_left_bytes(system: Path = Path("/")) -> int:
    """Bytes that processes here may still take before something must be swapped out or killed.

    Raises OSError where this process can open no more files.

    Page cache counts as free, as in the kernel's own `MemAvailable` (proc(5)); so it is read for cgroups too.
    """
    return min([_machine_left_bytes(system / "proc"), *(left for left, _ in _rooms_of_cgroups(system))])


def container_room(system: Path = Path("/")) -> tuple[int, int] | None:
    """What the cgroup around this process that has least left can still give, and its limit, in bytes; `None`: none.

    Raises as `memory_left_bytes`.
    """
    return min(_rooms_of_cgroups(system), default=None)


def _machine_left_bytes(proc: Path) -> int:
    """The machine's own word for it; a virtual machine that gives memory back to its host has no more than is promised.

    What its balloon holds looks as if it could be had again (`Balloon`, Linux 6.12; proc(5)), and the host may not have
    it. Elsewhere nobody keeps to what is promised: `Committed_AS` may well be more than there is.
    """
    meminfo = proc / "meminfo"
    left = _field(meminfo, "MemAvailable:")
    if _field(meminfo, "Balloon:"):
        left = min(left, _field(meminfo, "MemTotal:") - _field(meminfo, "Committed_AS:"))
    return max(0, left) * 1024


def resident_bytes() -> int:
    """What this process has in memory of its own."""
    return _field(Path("/proc/self/status"), "RssAnon:") * 1024


def own_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """What a process has for itself: without pages of files, which others share and the system can take back.

    0 when it is gone.
    """
    status = proc / str(pid) / "status"
    return (_field(status, "RssAnon:") + _field(status, "RssShmem:")) * 1024


def _cgroup_entries(proc: Path) -> list[tuple[str, str]]:
    """Controllers and path of each cgroup that this process is in; a path may hold anything but a line feed.

    Raises OSError.
    """
    with (proc / "self" / "cgroup").open("rb") as lines:
        entries = (os.fsdecode(line.removesuffix(b"\n")).split(":", 2) for line in lines)
        return [(controllers, path) for _, controllers, path in entries]


@functools.cache
def _cgroups(system: Path) -> list[tuple[Path, tuple[str, str, str]]]:
    """The folders of this process's cgroups, from its own up to the root's, and what their files are called.

    They are looked up once: a process that somebody moves into another cgroup keeps these.
    """
    entries: list[tuple[str, str]] = []
    with _if_it_is_there():
        entries = _cgroup_entries(system / "proc")
    found = []
    for controllers, path in entries:
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = system / "sys/fs/cgroup" / ("memory" if controllers else "")
        # Inside a container the path is the host's, and its own cgroup is the mount itself: the walk up finds that too.
        folder = mount / path.lstrip("/")
        folders = [folder, *folder.parents]
        names = _NAMES[bool(controllers)]
        found += [(place, names) for place in folders[: folders.index(mount) + 1] if (place / names[0]).exists()]
    return found


def _rooms_of_cgroups(system: Path) -> list[tuple[int, int]]:
    """What is left below the limit of each cgroup that has one, and that limit."""
    rooms = (_room_of(*group) for group in _cgroups(system))
    return [room for room in rooms if room is not None]


def _room_of(folder: Path, names: tuple[str, str, str]) -> tuple[int, int] | None:
    limit_name, usage_name, cache_name = names
    with _if_it_is_there(), contextlib.suppress(ValueError):  # "max" is no number: no limit
        limit = int((folder / limit_name).read_text("ascii"))
        if limit < _UNLIMITED:
            used = int((folder / usage_name).read_text("ascii")) - _field(folder / "memory.stat", cache_name)
            return max(0, limit - used), limit
    return None


def _field(file: Path, name: str) -> int:
    with _if_it_is_there(), file.open("rb") as lines:  # a process may call itself what it likes
        for line in lines:
            if line.startswith(name.encode()):
                return int(line.split()[1])
    return 0


@contextlib.contextmanager
def _if_it_is_there() -> Iterator[None]:
    """What a system does not tell is left out. That this process can open no more files is another matter."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise
