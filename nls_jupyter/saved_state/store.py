"""One component as it is written and read: a pickle stream, and regions, the raw memory of one storage each."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nls_jupyter.saved_state.arena import CHUNK_BYTES, Arena, NoRoomError, digest_of
from nls_jupyter.saved_state.aside import SHARED, NotAsideError
from nls_jupyter.saved_state.blobs import Blob, BlobWriter, Table, pieces_of, read_blob, read_chunks, read_each
from nls_jupyter.saved_state.shared_memory import SharedMemory
from nls_jupyter.saved_state.window import address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nls_jupyter.saved_state.blobs import Chunk
    from nls_jupyter.saved_state.manifest import Where

__all__ = ["Held", "Layout", "Places", "Reader", "Scratch", "Source", "Stored", "digests"]

# Smaller regions lie together in one pack: a page each would cost more than they hold.
_PACKED_BYTES = 1 << 16
_ALIGNMENT_BYTES = 64
_PACK = -1


class Source(Protocol):
    """The memory of one storage, to be copied into a region."""

    @property
    def size_bytes(self) -> int:
        """Length."""

    @property
    def where(self) -> Where:
        """Which memory it is."""

    def memory(self) -> memoryview | None:
        """All of it where it lies, if that is host memory; otherwise it comes in `pieces`."""

    def pieces(self) -> Iterator[memoryview | None]:
        """The memory, in pieces of `CHUNK_BYTES`; `None` for a whole piece of zeros. Valid until the next one."""


@runtime_checkable
class OnDevice(Source, Protocol):
    """Memory that can tell on its device whether it has changed."""

    def fingerprints(self) -> list[bytes] | None:
        """One for each piece; `None` if it cannot tell now."""

    def piece(self, first: int, count: int = 1) -> memoryview:
        """Some of `pieces` side by side, of `STAGING_BYTES` at most; valid until the same thread's next ones."""


#: What memory looked like on its device when it was saved, by its key, and what was saved of it.
Fingerprints = dict[object, tuple[list[bytes], Blob]]


class Scratch:
    """Takes a pickle stream; in the process's own memory, since most of it is there in the arena already.

    Args:
        fits: raises when so many bytes are more than there is room for.
        tick: called now and then; what it raises stops the save.
    """

    def __init__(self, fits: Callable[[int], None], tick: Callable[[], None]) -> None:
        self._content = bytearray()
        self._fits = fits
        self._tick = tick

    def write(self, content: Any, /) -> int:
        """Append; the pickler calls this, about once per 64 KiB."""
        self._tick()
        view = memoryview(content).cast("B")
        self._fits(len(self._content) + view.nbytes)
        self._content += view
        return view.nbytes

    def tell(self) -> int:
        """How long the stream is."""
        return len(self._content)

    def rewind(self, position: int) -> None:
        """Forget the stream from `position` on."""
        del self._content[position:]

    def content(self) -> memoryview:
        """All of it."""
        return memoryview(self._content)


#: What memory on devices held, by its key: stored, or as it is where it is small.
Held = dict[object, "Blob | bytes"]


class Layout:
    """Puts regions into an arena, the small ones together.

    Attributes:
        fingerprints: of all memory on devices that was put.
        on_host: all memory of the host that was put, first address and size in bytes.

    Args:
        blobs: writes into the arena.
        tick: called now and then; what it raises stops the save.
        before: the fingerprints of the save before.
        held: in a copy of the process, what is put in place of memory on devices, which it cannot read; else `None`.
    """

    def __init__(
        self, blobs: BlobWriter, tick: Callable[[], None], before: Fingerprints, held: Held | None = None
    ) -> None:
        self._blobs = blobs
        self._tick = tick
        self._before = before
        self._held = held
        self._shared = SharedMemory() if held is not None else None
        self.fingerprints: Fingerprints = {}
        self.on_host: list[tuple[int, int]] = []

    def hold(self, source: Source, key: object) -> Blob | bytes:
        """Read memory on a device, for somebody who cannot. Raises NoRoomError, OSError."""
        return _content_of(source) if source.size_bytes < _PACKED_BYTES else self._put(source, key)

    def put(
        self, sources: Sequence[Source], keys: Sequence[object], failed: Callable[[int], None] | None = None
    ) -> Places:
        """Store all of them, `keys` as in `Regions`; `failed` gets the position of one for which there was no room.

        Raises NoRoomError, OSError; NotAsideError for memory that a copy cannot read, or shares with its process.
        """
        places: list[Blob | tuple[int, int]] = []
        pack = bytearray()
        for number, source in enumerate(sources):
            try:
                found = self._held_of(source, keys[number])
                if isinstance(found, Blob):
                    places.append(found)
                elif source.size_bytes < _PACKED_BYTES:
                    pack += bytes(-len(pack) % _ALIGNMENT_BYTES)
                    places.append((len(pack), source.size_bytes))
                    pack += _content_of(source) if found is None else found
                else:
                    places.append(self._put(source, keys[number]))
            except NoRoomError:
                if failed is not None:
                    failed(number)
                raise
        return Places(places, self._blobs.put(pieces_of(memoryview(pack)), self._tick))

    def _held_of(self, source: Source, key: object) -> Blob | bytes | None:
        if not source.size_bytes:
            return None
        if source.where == "host":
            self._note_on_host(source)
            return None
        if self._held is None:
            return None
        if key not in self._held:
            raise NotAsideError("it holds memory of a Gpu that only its own process can read")
        return self._held[key]

    def _note_on_host(self, source: Source) -> None:
        if (memory := source.memory()) is None:
            return
        place = (address_of(memory), source.size_bytes)
        self.on_host.append(place)
        if self._shared is not None and self._shared.holds(*place):
            raise NotAsideError(SHARED)

    def _put(self, source: Source, key: object) -> Blob:
        fingerprints = None
        if key is not None and source.where == "gpu" and isinstance(source, OnDevice):
            fingerprints = source.fingerprints()
        if fingerprints is None or not isinstance(source, OnDevice):
            if (memory := source.memory()) is not None:
                return self._blobs.put_memory(memory, self._tick)
            return self._blobs.put(source.pieces(), self._tick)
        known: list[Chunk | None] = [None] * len(fingerprints)
        if key in self._before:  # the key has the memory's size in it
            before, blob = self._before[key]
            same = zip(fingerprints, before, blob.chunks, strict=True)
            known = [chunk if now == then else None for now, then, chunk in same]
        stored = self._blobs.put_each(known, source.piece, self._tick)
        self.fingerprints[key] = (fingerprints, stored)
        return stored


def _content_of(source: Source) -> bytes:
    """Of a small one."""
    return b"".join(bytes(source.size_bytes) if piece is None else piece for piece in source.pieces())


def digests(source: Source, tick: Callable[[], None]) -> list[bytes]:
    """What the chunks of a region would be known by, were it stored now."""
    found = []
    for piece in source.pieces():
        tick()
        found.append(digest_of(bytes(CHUNK_BYTES) if piece is None else piece))
    return found


class Places:
    """Where a component's regions lie."""

    def __init__(self, places: list[Blob | tuple[int, int]], pack: Blob) -> None:
        self.places = places
        self.pack = pack

    def chunks(self) -> Iterator[Chunk]:
        """All that they consist of."""
        yield from self.pack.chunks
        for place in self.places:
            if isinstance(place, Blob):
                yield from place.chunks

    def size_bytes(self, region: int) -> int:
        """Length of a region."""
        place = self.places[region]
        return place.size_bytes if isinstance(place, Blob) else place[1]


@dataclass(frozen=True, slots=True)
class Stored:
    """A component where it lies.

    Attributes:
        stream: the pickle stream.
        regions: the memory that the stream refers to.
        buffers: which of the regions are its out-of-band buffers, in order.
        hash_cycles: see the module of that name.
    """

    stream: Blob
    regions: Places
    buffers: Sequence[int]
    hash_cycles: bool = False

    def chunks(self) -> list[Chunk]:
        """All that it consists of."""
        return [*self.stream.chunks, *self.regions.chunks()]

    def digests(self) -> list[bytes]:
        """Equal for equal content."""
        return [chunk.digest for chunk in self.chunks()]

    def to_index(self, table: Table) -> dict[str, Any]:
        """For the index: per region `[first row, rows, size]`, or `[-1, offset in the pack, size]`."""
        places = self.regions.places
        regions = [table.add(place) if isinstance(place, Blob) else [_PACK, *place] for place in places]
        pack = table.add(self.regions.pack)
        found = {"stream": table.add(self.stream), "buffers": self.buffers, "regions": regions, "pack": pack}
        return {**found, "hash_cycles": True} if self.hash_cycles else found


@dataclass(frozen=True, slots=True)
class Contents:
    """A committed state, to be read.

    Attributes:
        arena: where it lies.
        chunks: all of its index.
        progress: called now and then while it is read.
    """

    arena: Arena
    chunks: Sequence[Chunk]
    progress: Callable[[], None]

    def blob(self, entry: Sequence[int]) -> Blob:
        """A blob by its entry of the index."""
        first, count, size_bytes = entry
        return Blob(size_bytes, tuple(self.chunks[first : first + count]))

    def stored(self, entry: Mapping[str, Any]) -> Stored:
        """A component by its entry of the index."""
        places = [(place[1], place[2]) if place[0] == _PACK else self.blob(place) for place in entry["regions"]]
        regions = Places(places, self.blob(entry["pack"]))
        return Stored(self.blob(entry["stream"]), regions, entry["buffers"], entry.get("hash_cycles", False))


class Reader:
    """A component that is read.

    Attributes:
        progress: called now and then while it is read.
        buffers: see `Stored`.
        hash_cycles: see `Stored`.
    """

    def __init__(self, arena: Arena, stored: Stored, progress: Callable[[], None]) -> None:
        self._arena = arena
        self._stream = stored.stream
        self._regions = stored.regions
        self._pack: memoryview | None = None
        self.progress = progress
        self.buffers = stored.buffers
        self.hash_cycles = stored.hash_cycles

    def stream(self) -> io.BufferedReader:
        """The pickle stream from its beginning."""
        return io.BufferedReader(_StreamFile(self._arena, self._stream, self.progress), CHUNK_BYTES)

    def size_bytes(self, region: int) -> int:
        """Length of a region."""
        return self._regions.size_bytes(region)

    def read_into(self, region: int, target: memoryview, *, zeroed: bool = False) -> None:
        """Copy a region over ordinary memory of its length; `zeroed` memory stays untouched where it is to be zero.

        Raises SavedStateDamagedError.
        """
        self.progress()
        place = self._regions.places[region]
        if isinstance(place, Blob):
            read_blob(self._arena, place, target, self.progress, zeroed=zeroed)
        else:
            target.cast("B")[:] = self._packed(*place)

    def read_each(
        self, region: int, staging: Callable[[], memoryview], write: Callable[[int, memoryview], None]
    ) -> None:
        """Hand a region's content to `write`, piece by piece with its offset, for memory that only a device can write.

        `write` is called in several threads; a piece lies in memory that `staging` made for its thread, of
        `STAGING_BYTES` or the region's size if that is less, until the next one. Raises SavedStateDamagedError.
        """
        self.progress()
        place = self._regions.places[region]
        if isinstance(place, Blob):
            read_each(self._arena, place, staging, write, self.progress)
        else:
            packed = self._packed(*place)
            content = staging()[: packed.nbytes]
            content[:] = packed
            write(0, content)

    def _packed(self, offset: int, size_bytes: int) -> memoryview:
        if self._pack is None:
            blob = self._regions.pack
            pack = memoryview(bytearray(blob.size_bytes))
            read_blob(self._arena, blob, pack, self.progress)
            self._pack = pack  # only once it has been checked: a second attempt comes here again
        return self._pack[offset : offset + size_bytes]


class _StreamFile(io.RawIOBase):
    """A blob as a file; no byte of a damaged chunk reaches the unpickler."""

    def __init__(self, arena: Arena, blob: Blob, progress: Callable[[], None]) -> None:
        self._arena = arena
        self._progress = progress
        self._chunks = iter(blob.chunks)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._left:
            self._progress()
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            content = memoryview(bytearray(chunk.size_bytes))
            read_chunks(self._arena, [chunk], content)
            self._left = content
        target = memoryview(buffer).cast("B")
        count = min(target.nbytes, self._left.nbytes)
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
