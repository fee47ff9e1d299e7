"""What was committed last, in the arena where the next save is written beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import index
from nls_jupyter.saved_state.blobs import BlobWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nls_jupyter.saved_state.arena import Arena
    from nls_jupyter.saved_state.blobs import Chunk, Table
    from nls_jupyter.saved_state.extents import Extent


class Committed:
    """One state at a time. A save is `begin`, what it writes into `blobs`, `commit` and `keep_only`.

    Attributes:
        arena: where it lies.
        blobs: writes into the arena.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.blobs = BlobWriter(arena)
        self._index: Extent | None = None
        self._replaced: Extent | None = None

    def begin(self) -> None:
        """A new save."""
        self.arena.begin()
        self.blobs.begin()

    def commit(self, content: Mapping[str, Any], table: Table) -> None:
        """Make this the state that stands. Raises OSError; then what stood before does."""
        extent = self.arena.commit(index.to_bytes(content, table))
        self._replaced, self._index = self._index, extent

    def keep_only(self, chunks: Iterable[Chunk]) -> None:
        """Give back what the committed state does not consist of. Called after a commit."""
        spare_bytes = min(self.blobs.written_bytes, max(self.arena.memory_room_bytes, 0) // 2)
        self.blobs.keep_only(chunks, spare_bytes)
        if self._replaced is not None:
            self.arena.release([self._replaced])
            self._replaced = None

    def read(self) -> tuple[dict[str, Any], list[Chunk]]:
        """The content of the index, and its chunks, whoever has committed it. Raises SavedStateDamagedError."""
        self._index, content, chunks = index.read(self.arena)
        return content, chunks

    def adopt(self, chunks: Sequence[Chunk]) -> None:
        """Go on from what was `read`, which consists of `chunks`; whatever else lies there is given back."""
        extents = [chunk.extent for chunk in chunks if chunk.extent is not None]
        self.arena.release_all_but([*extents, *([self._index] if self._index is not None else [])])
        self._replaced = None
        self.blobs.adopt(chunks)

    def close(self) -> None:
        """Let go of the arena; others may hold it on."""
        self.arena.close()
