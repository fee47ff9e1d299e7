"""Parts of the files that saved state lies in: where one is, will be, or has been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from nls_jupyter.saved_state.window import HUGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY, SPILL = 0, 1

PAGE_BYTES: Final = 4096


class Extent(NamedTuple):
    """Where a part lies."""

    file: int
    position: int
    size_bytes: int


class Place(NamedTuple):
    """Where a part will lie.

    Attributes:
        extent: is the part's.
        is_there: its memory is allocated.
        stretch_bytes: so much is to be allocated from there on, as huge pages; the part is the first of it, and others
            that are filled with it may follow.
    """

    extent: Extent
    is_there: bool
    stretch_bytes: int = 0


class Holes:
    """The holes of a file, in order: what lies side by side is one."""

    def __init__(self) -> None:
        self._of: list[tuple[int, int]] = []

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(end - start for start, end in self._of)

    def have_room(self, size_bytes: int) -> bool:
        """Whether one of them is as large."""
        return any(end - start >= size_bytes for start, end in self._of)

    def take(self, size_bytes: int) -> int | None:
        """The first one of that size or more, whose begin is used from now on."""
        for number, (start, end) in enumerate(self._of):
            if end - start >= size_bytes:
                self._of[number : number + 1] = [(start + size_bytes, end)] if end - start > size_bytes else []
                return start
        return None

    def add(self, holes: Iterable[tuple[int, int]]) -> None:
        """Remember more of them, each by its begin and end."""
        together: list[tuple[int, int]] = []
        for start, end in sorted([*self._of, *holes]):
            if together and together[-1][1] == start:
                together[-1] = together[-1][0], end
            else:
                together.append((start, end))
        self._of = together

    def cut_at(self, end: int) -> int:
        """Where a file that ended at `end` may end now: before its last hole."""
        return self._of.pop()[0] if self._of and self._of[-1][1] == end else end


def joined(parts: Iterable[tuple[Extent, int]]) -> list[tuple[Extent, int]]:
    """Extents, each with an offset in another memory, those as one that follow each other in both."""
    runs: list[tuple[Extent, int]] = []
    for extent, offset in parts:
        if runs and (extent.file, extent.position, offset) == _ends_of(*runs[-1]):
            before, start = runs.pop()
            runs.append((before._replace(size_bytes=before.size_bytes + extent.size_bytes), start))
        else:
            runs.append((extent, offset))
    return runs


def _ends_of(extent: Extent, offset: int) -> tuple[int, int, int]:
    return extent.file, extent.position + extent.size_bytes, offset + extent.size_bytes


def pages(size_bytes: int) -> int:
    """What so much takes of whole pages."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def aligned(position: int) -> int:
    """Where the next huge page may begin."""
    return -(-position // HUGE_BYTES) * HUGE_BYTES
