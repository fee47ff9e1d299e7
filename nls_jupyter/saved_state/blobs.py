"""Blobs: contents of any length in an arena, as chunks known by their digest; what is there already is not written.

A chunk of zeros takes no place. Each chunk is checked when it is read.
"""

from __future__ import annotations

import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TYPE_CHECKING, NamedTuple

from nls_jupyter.saved_state.arena import CHUNK_BYTES, Arena, NoRoomError, SavedStateDamagedError, digest_of
from nls_jupyter.saved_state.extents import Extent, Place, joined
from nls_jupyter.saved_state.parallel import FROM_DEVICE_THREADS, HOST_THREADS, TO_DEVICE_THREADS, Part, for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_ROW = struct.Struct("<16sIIQ")  # digest, file, size, position
_ZERO_FILE = 2
# What a thread reads at once, of a host's memory and of a device's: a bus takes large pieces better.
_CHUNKS_AT_ONCE = 4
_DEVICE_CHUNKS_AT_ONCE = 8
#: Memory that a thread needs between a device and the arena, at most.
STAGING_BYTES = _DEVICE_CHUNKS_AT_ONCE * CHUNK_BYTES
_ZEROS = (digest_of(bytes(CHUNK_BYTES)), CHUNK_BYTES)


class Chunk(NamedTuple):
    """A part of a blob; without extent it is all zeros."""

    digest: bytes
    size_bytes: int
    extent: Extent | None


@dataclass(frozen=True, slots=True)
class Blob:
    """A content, as its chunks in order."""

    size_bytes: int
    chunks: tuple[Chunk, ...]


class BlobWriter:
    """Puts contents into an arena.

    Attributes:
        written_bytes: what had to be written since `begin`.
        hashed_bytes: what was looked at.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        #: All chunks that lie in the arena: of the committed state, and of saves that were stopped.
        self.known: dict[tuple[bytes, int], Chunk] = {}
        self.written_bytes = 0
        self.hashed_bytes = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A new save."""
        self.written_bytes = self.hashed_bytes = 0

    def put(self, pieces: Iterable[memoryview | Chunk | None], tick: Callable[[], None]) -> Blob:
        """Store a content.

        Args:
            pieces: memory of `CHUNK_BYTES` each, the last one shorter; `None` for a whole chunk of zeros, a chunk of
                the committed state for one that is known to be the same.
            tick: called before each piece; what it raises stops the save.

        Raises:
            NoRoomError: nothing of it stays, so that others find the room.
            OSError: the system refuses.
        """
        chunks: list[Chunk] = []
        with self._all_or_nothing():
            for piece in pieces:
                tick()
                if piece is None:
                    piece = Chunk(*_ZEROS, None)
                chunks += [piece] if isinstance(piece, Chunk) else self.put_chunks(piece)
        return Blob(sum(chunk.size_bytes for chunk in chunks), tuple(chunks))

    def put_memory(self, content: memoryview, tick: Callable[[], None]) -> Blob:
        """Store host memory, as `put` stores its pieces; several threads share the work."""
        flat = content.cast("B")

        def piece(first: int, count: int) -> memoryview:
            return flat[first * CHUNK_BYTES : (first + count) * CHUNK_BYTES]

        known = [None] * -(-flat.nbytes // CHUNK_BYTES)
        return self._put_each(known, piece, tick, _CHUNKS_AT_ONCE, HOST_THREADS)

    def put_each(
        self, known: Sequence[Chunk | None], piece: Callable[[int, int], memoryview], tick: Callable[[], None]
    ) -> Blob:
        """Store a device's memory, whose chunks are asked for by their numbers, in several threads at once.

        Args:
            known: for each chunk one of the committed state that is the same, or `None`: then it is asked for.
            piece: gives some chunks side by side, of `STAGING_BYTES` at most: from the first one on, so many; valid
                until the same thread asks for the next ones.
            tick: called after each piece; what it raises stops the save.

        Raises:
            NoRoomError: nothing of it stays, so that others find the room.
            OSError: the system refuses.
        """
        return self._put_each(known, piece, tick, _DEVICE_CHUNKS_AT_ONCE, FROM_DEVICE_THREADS)

    def _put_each(
        self,
        known: Sequence[Chunk | None],
        piece: Callable[[int, int], memoryview],
        tick: Callable[[], None],
        at_once: int,
        threads: int,
    ) -> Blob:
        found = {number: chunk for number, chunk in enumerate(known) if chunk is not None}

        def store(run: range) -> None:
            found.update(zip(run, self.put_chunks(piece(run.start, len(run))), strict=True))

        with self._all_or_nothing():
            for_each(_runs([number not in found for number in range(len(known))], at_once), store, tick, threads)
        chunks = tuple(found[number] for number in range(len(known)))
        return Blob(sum(chunk.size_bytes for chunk in chunks), chunks)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What was stored before there was no more room does not stay."""
        new_before = len(self.known)
        try:
            yield
        except NoRoomError as error:
            new = list(islice(reversed(self.known), len(self.known) - new_before))
            freed = [extent for key in new if (extent := self.known.pop(key).extent) is not None]
            self._arena.release(freed)
            room_bytes = error.room_bytes + sum(extent.size_bytes for extent in freed)
            raise NoRoomError(error.size_bytes, room_bytes, error.why_no_spill) from error

    def put_chunks(self, content: memoryview) -> list[Chunk]:
        """Store chunks that lie side by side, but for those that are there. Raises NoRoomError, OSError.

        For all of them at once: threads that take turns at Python's lock lose more with each turn than a chunk takes.
        """
        keys = [(digest_of(part), part.nbytes) for part in pieces_of(content)]
        new: dict[tuple[bytes, int], int] = {}
        try:
            with self._lock:
                self.hashed_bytes += content.nbytes
                for number, key in enumerate(keys):
                    if key not in self.known and key != _ZEROS:
                        new.setdefault(key, number * CHUNK_BYTES)
                placed = self._placed(new, content)
                chunks = [Chunk(*key, None) if key == _ZEROS else self.known[key] for key in keys]
            self._arena.fill(placed, content)
        except NoRoomError:
            raise  # see `_all_or_nothing`
        except BaseException:
            with self._lock:
                for key in new:
                    self.known.pop(key, None)  # nothing may rely on what was not written
            raise
        return chunks

    def _placed(self, new: Mapping[tuple[bytes, int], int], content: memoryview) -> list[tuple[Place, int]]:
        """Places in memory that are to be filled, with offsets in `content`; what has none there is on disk already."""
        placed = []
        found = zip(new.items(), self._arena.reserve(size for _, size in new), strict=True)
        # Those without a place last: one that finds no room on disk either ends it, and all others are known by then.
        for (key, offset), place in sorted(found, key=lambda each: each[1] is None):
            extent = place.extent if place else self._arena.append(content[offset : offset + key[1]])
            self.known[key] = Chunk(*key, extent)
            self.written_bytes += key[1]
            if place:
                placed.append((place, offset))
        return placed

    def adopt(self, chunks: Iterable[Chunk]) -> None:
        """Know chunks that lie in the arena already."""
        self.known = {(chunk.digest, chunk.size_bytes): chunk for chunk in chunks if chunk.extent is not None}

    def keep_only(self, chunks: Iterable[Chunk], spare_bytes: int) -> None:
        """Give back the place of all other chunks. Called after a commit."""
        before = self.known
        self.adopt(chunks)
        dead = (chunk.extent for key, chunk in before.items() if key not in self.known)
        self._arena.keep_spare(spare_bytes)
        self._arena.release([extent for extent in dead if extent is not None], spare_bytes)


def _bunches(parts: Sequence[Part], at_once: int = _CHUNKS_AT_ONCE) -> list[Sequence[Part]]:
    """What a thread does at once."""
    return [parts[first : first + at_once] for first in range(0, len(parts), at_once)]


def _runs(wanted: Sequence[bool], at_once: int) -> list[range]:
    """Numbers side by side of which each is wanted, so many at most."""
    runs: list[range] = []
    for number in (number for number, is_wanted in enumerate(wanted) if is_wanted):
        if runs and runs[-1].stop == number and len(runs[-1]) < at_once:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


def pieces_of(content: memoryview) -> Iterator[memoryview]:
    """Host memory, in pieces for `BlobWriter.put`."""
    flat = content.cast("B")
    for start in range(0, flat.nbytes, CHUNK_BYTES):
        yield flat[start : start + CHUNK_BYTES]


def read_chunks(arena: Arena, chunks: Iterable[Chunk], target: memoryview) -> None:
    """Copy chunks one after another over memory of their length, and those at once that lie side by side.

    Raises SavedStateDamagedError for one that is not what was written.
    """
    checked: list[tuple[bytes, memoryview]] = []
    runs: list[tuple[Extent, int]] = []
    offset = 0
    for chunk in chunks:
        part = target[offset : offset + chunk.size_bytes]
        if chunk.extent is None:
            part[:] = bytes(chunk.size_bytes)
        else:
            checked.append((chunk.digest, part))
            runs.append((chunk.extent, offset))
        offset += chunk.size_bytes
    for extent, start in joined(runs):
        arena.read_into(extent, target[start : start + extent.size_bytes])
    for digest, part in checked:
        if digest_of(part) != digest:
            raise SavedStateDamagedError("its part of the saved state is damaged")


def read_blob(
    arena: Arena, blob: Blob, target: memoryview, progress: Callable[[], None], *, zeroed: bool = False
) -> None:
    """Copy a blob over memory of its length; `zeroed` memory is not touched where it is to stay zero.

    Raises SavedStateDamagedError.
    """
    flat = target.cast("B")
    places = accumulate((chunk.size_bytes for chunk in blob.chunks), initial=0)
    parts = [
        (chunk, flat[position : position + chunk.size_bytes])
        for chunk, position in zip(blob.chunks, places, strict=False)
        if chunk.extent is not None or not zeroed
    ]

    def read(bunch: Sequence[tuple[Chunk, memoryview]]) -> None:
        for chunk, place in bunch:
            read_chunks(arena, [chunk], place)

    # What is new to this process costs most at its first touch, which several threads can share.
    for_each(_bunches(parts), read, progress)


def read_each(
    arena: Arena,
    blob: Blob,
    staging: Callable[[], memoryview],
    write: Callable[[int, memoryview], None],
    progress: Callable[[], None],
) -> None:
    """Hand a blob to a device's `write`, in several threads at once, piece by piece with its offset.

    `staging` makes `STAGING_BYTES`, or as much as the blob has: each thread has its own, which holds what it hands out
    until the next piece. Raises SavedStateDamagedError.
    """
    own = threading.local()
    places = accumulate((chunk.size_bytes for chunk in blob.chunks), initial=0)

    def read(bunch: Sequence[tuple[Chunk, int]]) -> None:
        if not hasattr(own, "buffer"):
            own.buffer = staging()
        (_, first), (last, at) = bunch[0], bunch[-1]
        content = own.buffer[: at - first + last.size_bytes]
        read_chunks(arena, [chunk for chunk, _ in bunch], content)
        write(first, content)

    bunches = _bunches(list(zip(blob.chunks, places, strict=False)), _DEVICE_CHUNKS_AT_ONCE)
    for_each(bunches, read, progress, TO_DEVICE_THREADS)


class Table:
    """The chunks of all blobs of an index, one row after another; a blob is `[first row, rows, size]`."""

    def __init__(self) -> None:
        self._rows = bytearray()
        self._count = 0

    def add(self, blob: Blob) -> list[int]:
        """A blob's entry for the index."""
        first = self._count
        for chunk in blob.chunks:
            file, position, _ = chunk.extent or (_ZERO_FILE, 0, 0)
            self._rows += _ROW.pack(chunk.digest, file, chunk.size_bytes, position)
        self._count += len(blob.chunks)
        return [first, len(blob.chunks), blob.size_bytes]

    def to_bytes(self) -> bytes:
        """All rows."""
        return bytes(self._rows)


def chunks_of(table: bytes) -> list[Chunk]:
    """The inverse of `Table.to_bytes`."""
    return [
        Chunk(digest, size_bytes, None if file == _ZERO_FILE else Extent(file, position, size_bytes))
        for digest, file, size_bytes, position in _ROW.iter_unpack(table)
    ]
