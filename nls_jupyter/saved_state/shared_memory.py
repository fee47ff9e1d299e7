"""Memory that a fork shares instead of copying it: a mapped file, shared memory. Its process goes on changing it."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAPS = Path("/proc/self/maps")
# What this package and drivers of Gpus map comes and goes, as do semaphores, and arrays of the host seldom show it.
_OTHERS = (b"/memfd:nls-", b"/dev/nvidia", b"/shm/sem.")


class SharedMemory:
    """What this process has mapped as shared, as of now; see proc(5)."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._mapped: set[bytes] = set()
        for line in _MAPS.read_bytes().split(b"\n")[:-1]:  # names of files may hold anything but a line feed
            addresses, permissions, where = line.split(maxsplit=2)
            if permissions.endswith(b"s"):
                start, _, end = addresses.partition(b"-")
                self._starts.append(int(start, 16))
                self._ends.append(int(end, 16))
                if not any(name in where for name in _OTHERS):
                    self._mapped.add(addresses)

    def has_more_than(self, before: SharedMemory) -> bool:
        """Whether something was mapped since that arrays of the host may well show."""
        return not self._mapped <= before._mapped

    def holds_any(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Whether `holds` is true of some."""
        return any(self.holds(*each) for each in ranges)

    def holds(self, start: int, size_bytes: int) -> bool:
        """Whether some of these addresses are shared."""
        # Ranges do not overlap: of those that begin before the end, only the last one can reach here.
        before = bisect_left(self._starts, start + size_bytes) - 1
        return before >= 0 and self._ends[before] > start
