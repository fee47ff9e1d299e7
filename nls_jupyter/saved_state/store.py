"""How a saved state lies in its memfd.

    header | pickle stream | regions | table of regions | index (JSON)

A region is the raw memory of one storage, at a multiple of 64 bytes, or of a page if it is large. The file may have
holes where a storage was never written to.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import json
import mmap
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nls_jupyter.saved_state.manifest import Where

_MAGIC = b"NLSSTATE"
_VERSION = 1
# magic, version, stream length, table position, number of regions, index position, index length
_HEADER = struct.Struct("<8sIxxxxQQQQQ")
_REGION = struct.Struct("<QQ")  # position, length
_ALIGNMENT_BYTES = 64
_LARGE_BYTES = 1 << 20
_HEADER_BYTES = 64
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class SavedStateDamagedError(Exception):
    """A file descriptor does not hold a saved state of this version, or not all of it."""


class Source(Protocol):
    """The memory of one storage, to be copied into a region."""

    @property
    def size_bytes(self) -> int:
        """Length."""

    @property
    def where(self) -> Where:
        """Which memory it is."""

    def write(self, region: RegionWriter) -> None:
        """Copy the memory; called once, after everything was pickled."""


class RegionWriter:
    """One region while a saved state is being written."""

    def __init__(self, fd: int, position: int, size_bytes: int) -> None:
        self._fd = fd
        self._position = position
        self.size_bytes = size_bytes

    def write(self, content: memoryview, offset: int = 0) -> None:
        """Copy host memory to `offset`."""
        _pwrite(self._fd, content.cast("B"), self._position + offset)

    @contextmanager
    def address(self) -> Iterator[int]:
        """The region mapped into memory, for a device to write to. Not for regions of no bytes."""
        with _mapped(self._fd, self._position, self.size_bytes, mmap.ACCESS_WRITE) as address:
            yield address


class Writer(io.RawIOBase):
    """A new memfd; as a file it takes the pickle stream, then `finish` adds the rest."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("nls-saved-state", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._position = _HEADER_BYTES
        #: Why the stream could not be written: nothing that an object could help.
        self.failure: OSError | None = None

    def write(self, content: Any, /) -> int:
        """Append to the stream; the pickler calls this."""
        view = memoryview(content).cast("B")
        try:
            _pwrite(self.fd, view, self._position)
        except OSError as error:
            self.failure = error
            raise
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Where the stream ends."""
        return self._position

    def rewind(self, position: int) -> None:
        """Forget the stream from `position` (of `tell`) on."""
        self._position = position

    def finish(self, sources: Sequence[Source], index: dict[str, Any]) -> int:
        """Copy the regions, write the index, seal the file and hand over its descriptor, the caller's to close."""
        os.ftruncate(self.fd, self._position)  # what was forgotten last must not lie under the regions
        stream_bytes = self._position - _HEADER_BYTES
        table = bytearray()
        end = self._position
        for source in sources:
            end += -end % (mmap.PAGESIZE if source.size_bytes >= _LARGE_BYTES else _ALIGNMENT_BYTES)
            table += _REGION.pack(end, source.size_bytes)
            end += source.size_bytes
        end += -end % _ALIGNMENT_BYTES
        text = json.dumps(index).encode()
        os.ftruncate(self.fd, end + len(table) + len(text))
        for source, (position, size_bytes) in zip(sources, _REGION.iter_unpack(table), strict=True):
            source.write(RegionWriter(self.fd, position, size_bytes))
        _pwrite(self.fd, memoryview(table + text), end)
        header = _HEADER.pack(_MAGIC, _VERSION, stream_bytes, end, len(sources), end + len(table), len(text))
        _pwrite(self.fd, memoryview(header), 0)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        fd, self.fd = self.fd, -1
        return fd

    def close(self) -> None:
        """Drop what was not finished. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        super().close()


class Reader:
    """A finished saved state. Reads at positions: the descriptor's own offset, which others share, stays."""

    def __init__(self, fd: int) -> None:
        """Raises `SavedStateDamagedError`."""
        self._fd = fd
        header = os.pread(fd, _HEADER.size, 0)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            raise SavedStateDamagedError("This file descriptor does not hold a saved state.")
        _, version, self._stream_bytes, table_at, regions, index_at, index_bytes = _HEADER.unpack(header)
        if version != _VERSION:
            raise SavedStateDamagedError(f"A saved state of version {version}; this nls-jupyter reads {_VERSION}.")
        if os.fstat(fd).st_size < index_at + index_bytes:
            raise SavedStateDamagedError("The saved state ends before its index does.")
        self._regions = list(_REGION.iter_unpack(self._pread(table_at, regions * _REGION.size)))
        self.index: dict[str, Any] = json.loads(self._pread(index_at, index_bytes))

    def stream(self) -> io.BufferedReader:
        """The pickle stream from its beginning."""
        return io.BufferedReader(_StreamFile(self._fd, _HEADER_BYTES, self._stream_bytes), 1 << 20)

    def size_bytes(self, region: int) -> int:
        """Length of a region."""
        return int(self._regions[region][1])

    def read_into(self, region: int, target: memoryview) -> None:
        """Copy a region over ordinary memory of the same length."""
        _pread_into(self._fd, target.cast("B"), self._regions[region][0])

    def read_written(self, region: int, target: memoryview) -> None:
        """Copy a region into memory that is zero already: its holes are passed by."""
        position, size_bytes = self._regions[region]
        bytes_of = target.cast("B")
        end = 0
        while end < size_bytes:
            try:
                start = max(os.lseek(self._fd, position + end, os.SEEK_DATA) - position, end)
            except OSError:  # ENXIO: nothing was written from here on
                return
            if start >= size_bytes:
                return
            end = min(os.lseek(self._fd, position + start, os.SEEK_HOLE) - position, size_bytes)
            _pread_into(self._fd, bytes_of[start:end], position + start)

    @contextmanager
    def address(self, region: int) -> Iterator[int]:
        """The region mapped into memory, for a device to read from. Not for regions of no bytes."""
        position, size_bytes = self._regions[region]
        with _mapped(self._fd, position, size_bytes, mmap.ACCESS_COPY) as address:
            yield address

    def _pread(self, position: int, size_bytes: int) -> bytes:
        content = bytearray(size_bytes)
        _pread_into(self._fd, memoryview(content), position)
        return bytes(content)


class _StreamFile(io.RawIOBase):
    def __init__(self, fd: int, position: int, size_bytes: int) -> None:
        self._fd = fd
        self._position = position
        self._end = position + size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")[: self._end - self._position]
        count = os.preadv(self._fd, [view], self._position)
        self._position += count
        return count


@contextmanager
def _mapped(fd: int, position: int, size_bytes: int, access: int) -> Iterator[int]:
    before = position % mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(fd, before + size_bytes, access=access, offset=position - before)
    try:
        start = ctypes.c_char.from_buffer(mapping, before)
        try:
            yield ctypes.addressof(start)
        finally:
            del start  # a mapping that somebody points into cannot be closed
    finally:
        mapping.close()


def _pwrite(fd: int, content: memoryview, position: int) -> None:
    done = 0
    while done < content.nbytes:
        done += os.pwrite(fd, content[done:], position + done)


def _pread_into(fd: int, target: memoryview, position: int) -> None:
    done = 0
    while done < target.nbytes:
        count = os.preadv(fd, [target[done:]], position + done)
        if not count:
            raise SavedStateDamagedError("The saved state ends before a region does.")
        done += count
