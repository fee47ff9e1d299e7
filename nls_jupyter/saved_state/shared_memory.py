"""Memory that a fork shares instead of copying it: a mapped file, shared memory. Its process goes on changing it."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

_MAPS = Path("/proc/self/maps")


class SharedMemory:
    """What this process has mapped as shared, as of now; see proc(5)."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        with _MAPS.open("rb") as lines:  # names of files may hold anything but a line feed
            for line in lines:
                addresses, permissions, _ = line.split(maxsplit=2)
                if permissions.endswith(b"s"):
                    start, _, end = addresses.partition(b"-")
                    self._starts.append(int(start, 16))
                    self._ends.append(int(end, 16))

    def holds(self, start: int, size_bytes: int) -> bool:
        """Whether some of these addresses are shared."""
        # Ranges do not overlap: of those that begin before the end, only the last one can reach here.
        before = bisect_left(self._starts, start + size_bytes) - 1
        return before >= 0 and self._ends[before] > start
