"""The memory file that saved state lies in, and a spill file if there is one; both vanish with their last holder.

    superblock A | superblock B | extents

An extent is never written to while a committed index refers to it. `commit` writes the index to new extents and then
one superblock, so that a process killed at any moment leaves the state before it, or the new one, whole. What no
committed index refers to is a hole, or spare.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import xxhash

from nls_jupyter.saved_state.ahead import Ahead
from nls_jupyter.saved_state.budget import Budget
from nls_jupyter.saved_state.extents import MEMORY, PAGE_BYTES, SPILL, Extent, Holes, Place, aligned, joined, pages
from nls_jupyter.saved_state.window import HUGE_BYTES, Window
from nls_scheduler.units.clock import monotonic_s
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nls_jupyter.saved_state.budget import Room

_MAGIC = b"NLSARENA"
_VERSION = 2
# magic, version, file of the index, sequence number, its position, its length, its digest
_SUPERBLOCK = struct.Struct("<8sIIQQQ16s")
_SLOT_BYTES = 2048
_DIGEST_BYTES = 16
# Of the largest file that this process may write, what is left to the index: it goes into memory whatever is left.
_INDEX_SHARE = 16

#: Every chunk but a blob's last has this size. Fits a processor's second-level cache: hashed and copied in one go.
CHUNK_BYTES = 1 << 20

# What a thread allocates at once where the system has huge pages: at most this, and this part of what the save took.
_STRETCH_BYTES = 1 << 24
_STRETCH_SHARE = 32

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


class SavedStateDamagedError(Exception):
    """Descriptors do not hold a saved state of this version, or a part of it is not what was written."""


class NoRoomError(Exception):
    """A part does not fit in what the machine has left.

    Attributes:
        size_bytes: of the part.
        room_bytes: what was left for it.
        why_no_spill: why the disk did not take it.
    """

    def __init__(self, size_bytes: int, room_bytes: int, why_no_spill: str) -> None:
        super().__init__(f"{size_bytes} bytes do not fit in the {room_bytes} that are left ({why_no_spill})")
        self.size_bytes = size_bytes
        self.room_bytes = room_bytes
        self.why_no_spill = why_no_spill


def digest_of(content: memoryview | bytes | bytearray) -> bytes:
    """A part's checksum and, in one save, its identity: 128 bits, not meant to resist an attacker."""
    # Several threads do this at once. Before version 4, a digest by one call keeps the GIL.
    hashed = xxhash.xxh3_128()
    hashed.update(content)
    return hashed.digest()


@dataclass(slots=True)
class _Tail:
    """One file's end, and what may be overwritten before it."""

    end: int = PAGE_BYTES
    spare: list[int] = field(default_factory=list)


class Arena:
    """One saved state at a time, and the next one while it is written.

    Several threads may `fill` at once, while one at a time does anything else.

    The descriptors are its own until `close`; `descriptors()` are for others to copy.
    """

    def __init__(self, memory_fd: int, spill_fd: int | None, room: Room) -> None:
        self._fds: list[int | None] = [memory_fd, spill_fd]
        self._window = Window(memory_fd)
        self._ahead: Ahead | None = None
        self._room = room
        self._tails = [_Tail(), _Tail(0)]
        self._budget = Budget(room, lambda: os.fstat(self.descriptors()[MEMORY]).st_blocks * 512)
        self._taken_bytes = 0
        self._sequence = 0
        self._largest_file_bytes = largest_file_bytes()
        # Of the file in memory, in order; remembered only where its length has a limit.
        self._holes = Holes()

    @classmethod
    def new(cls, room: Room) -> Arena:
        """An empty one. Raises OSError."""
        return cls(os.memfd_create("nls-saved-state", os.MFD_CLOEXEC), None, room)

    @classmethod
    def adopt(cls, descriptors: Sequence[int], room: Room) -> Arena:
        """An arena over copies of descriptors that hold a saved state. Raises OSError."""
        fds: list[int] = []
        with contextlib.ExitStack() as copies:
            for descriptor in descriptors:
                copy = os.dup(descriptor)  # not inheritable
                copies.callback(os.close, copy)
                fds.append(copy)
            copies.pop_all()
        return cls(fds[0], fds[1] if len(fds) > 1 else None, room)

    def descriptors(self) -> list[int]:
        """The memory file's, and the spill file's if there is one."""
        return [fd for fd in self._fds if fd is not None]

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        self._settle()
        self._window.close()
        for fd in self._fds:
            if fd is not None:
                os.close(fd)
        self._fds = [None, None]

    # -- reading ----------------------------------------------------------------------------------------------------
    def index(self) -> tuple[Extent, bytes]:
        """The committed index, and where it lies. Raises SavedStateDamagedError."""
        sequence, extent, digest = self._newest()
        content = bytearray(extent.size_bytes)
        self.read_into(extent, memoryview(content))
        if digest_of(content) != digest:
            raise SavedStateDamagedError("The saved state's index is damaged.")
        self._sequence = sequence
        return extent, bytes(content)

    def read_into(self, extent: Extent, target: memoryview) -> None:
        """Copy an extent over memory of its length. Raises SavedStateDamagedError where the file ends before."""
        fd = self._fds[extent.file] if extent.file in {MEMORY, SPILL} else None
        if fd is None:
            raise SavedStateDamagedError("The saved state's spill file is not there.")
        done = 0
        while done < extent.size_bytes:
            count = os.preadv(fd, [target[done:]], extent.position + done)
            if not count:
                raise SavedStateDamagedError("The saved state ends before one of its parts does.")
            done += count

    def _newest(self) -> tuple[int, Extent, bytes]:
        found = []
        for slot in (0, 1):
            block = os.pread(self.descriptors()[0], _SUPERBLOCK.size + _DIGEST_BYTES, slot * _SLOT_BYTES)
            content, digest = block[: _SUPERBLOCK.size], block[_SUPERBLOCK.size :]
            if len(digest) == _DIGEST_BYTES and content.startswith(_MAGIC) and digest_of(content) == digest:
                found.append(_SUPERBLOCK.unpack(content))
        if not found:
            raise SavedStateDamagedError("This file descriptor does not hold a saved state.")
        _, version, file, sequence, position, size_bytes, digest = max(found, key=lambda block: block[3])
        if version != _VERSION:
            raise SavedStateDamagedError(f"A saved state of version {version}; this nls-jupyter reads {_VERSION}.")
        return sequence, Extent(file, position, size_bytes), digest

    # -- writing ----------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Called at the begin of each save."""
        self._settle()
        self._window.begin()
        self._tails[MEMORY].spare.sort(reverse=True)  # what lies side by side is taken one after another
        self._taken_bytes = 0
        self._largest_file_bytes = largest_file_bytes()
        self._budget.begin()
        tail = self._tails[MEMORY]
        if not self._window.reach(tail.end + max(self._budget.left_bytes, 0)) and tail.spare:
            self._window.reach(max(tail.spare) + CHUNK_BYTES)

    def prepare(self, size_bytes: int) -> None:
        """Allocate memory for so much more, as far as there is room, while nobody waits; until the next `begin`."""
        tail = self._tails[MEMORY]
        more_bytes = min(size_bytes, self._budget.left_bytes) - len(tail.spare) * CHUNK_BYTES
        fd = self._fds[MEMORY]
        start = aligned(tail.end)
        end = start + max(min(more_bytes, self._parts_end - start), 0) // HUGE_BYTES * HUGE_BYTES
        if end > start and fd is not None and self._window.reach(end):
            tail.end = start
            self._ahead = Ahead(fd, self._window, range(start, end), self._budget.now_bytes)

    def _settle(self) -> None:
        """Take what was allocated ahead."""
        if self._ahead is not None:
            tail, end = self._tails[MEMORY], self._ahead.stop()
            places = range(tail.end, end - CHUNK_BYTES + 1, CHUNK_BYTES)
            tail.spare += reversed(places)  # the first one is used first
            tail.end += len(places) * CHUNK_BYTES
            self._budget.take(len(places) * CHUNK_BYTES)
            self._ahead = None

    @property
    def memory_room_bytes(self) -> int:
        """What memory had left at the begin of this save, less what it has taken since."""
        return min(self._budget.left_bytes, self._length_left_bytes) + CHUNK_BYTES * len(self._tails[MEMORY].spare)

    @property
    def _length_left_bytes(self) -> int:
        """What parts may still take of the length that the file in memory may have."""
        return self._parts_end - self._tails[MEMORY].end + self._holes.size_bytes

    @property
    def _parts_end(self) -> int:
        """Where the last part in memory ends at the latest, so that the index has room behind it."""
        return self._largest_file_bytes - self._largest_file_bytes // _INDEX_SHARE

    def room_bytes(self) -> int:
        """What is left in memory, and on disk."""
        spill = self._fds[SPILL]
        on_disk = self._spill_left_bytes(spill) + CHUNK_BYTES * len(self._tails[SPILL].spare) if spill else 0
        return max(0, self.memory_room_bytes + on_disk)

    def _spill_left_bytes(self, spill: int) -> int:
        return min(self._room.spill_bytes(spill), self._largest_file_bytes - self._tails[SPILL].end)

    def fits(self, size_bytes: int) -> None:
        """Raises NoRoomError when so much would fit neither in memory nor on disk."""
        if size_bytes > self.memory_room_bytes:
            self._spill()
            if size_bytes > self.room_bytes():
                raise NoRoomError(size_bytes, self.room_bytes(), self._why_no_spill())

    def append(self, content: memoryview, *, must: bool = False) -> Extent:
        """Write a part; one that `must` be written goes into memory whatever is left.

        Raises NoRoomError, or OSError when the system refuses.
        """
        place = self._reserve(content.nbytes, must=must)
        if place is None:
            return self._append_to_spill(content)
        self.fill([(place, 0)], content)
        return place.extent

    def reserve(self, sizes_bytes: Iterable[int]) -> list[Place | None]:
        """Places in memory for parts that are filled together; `None` for each that no room is left for."""
        places: list[Place | None] = []
        stretch: list[int] = []
        for size_bytes in sizes_bytes:
            if size_bytes == CHUNK_BYTES and stretch:
                places.append(Place(Extent(MEMORY, stretch.pop(), size_bytes), is_there=False))
                continue
            place = self._reserve(size_bytes)
            if place is not None and place.stretch_bytes:
                start = place.extent.position
                stretch = [*range(start + CHUNK_BYTES, start + place.stretch_bytes, CHUNK_BYTES)][::-1]
            places.append(place)
        return places

    def _reserve(self, size_bytes: int, *, must: bool = False) -> Place | None:
        tail = self._tails[MEMORY]
        if size_bytes == CHUNK_BYTES and tail.spare:
            return Place(Extent(MEMORY, tail.spare.pop(), size_bytes), is_there=True)
        self._budget.look_again()
        taken = pages(size_bytes)
        stretch = self._stretch_bytes() if size_bytes == CHUNK_BYTES else 0
        if stretch:
            taken, tail.end = stretch, aligned(tail.end)
        elif not must and not self._has_room(taken):
            return None
        self._budget.take(taken)
        self._taken_bytes += taken
        position = None if stretch else self._holes.take(taken)
        if position is None:
            position = tail.end
            tail.end += taken
        return Place(Extent(MEMORY, position, size_bytes), is_there=False, stretch_bytes=stretch)

    def _has_room(self, size_bytes: int) -> bool:
        if size_bytes > self._budget.left_bytes and not self._has_made_room(size_bytes):
            return False
        at_end = self._tails[MEMORY].end + size_bytes <= self._parts_end
        return at_end or self._holes.have_room(size_bytes)

    def _remember(self, holes: Iterable[tuple[int, int]]) -> None:
        """Where the file may not grow as it likes its holes are used again, and it ends before the last one."""
        if self._largest_file_bytes == sys.maxsize:
            return
        self._holes.add(holes)
        if self._ahead is None:
            tail = self._tails[MEMORY]
            tail.end = self._holes.cut_at(tail.end)

    def _has_made_room(self, size_bytes: int) -> bool:
        """Give back what is kept to be overwritten, for a part that does not fit there."""
        spare = self._tails[MEMORY].spare
        chunks = -(-(size_bytes - self._budget.left_bytes) // CHUNK_BYTES)
        if chunks > len(spare):
            return False
        self._give_back(Extent(MEMORY, position, CHUNK_BYTES) for position in spare[:chunks])  # the last to be used
        del spare[:chunks]
        return True

    def _stretch_bytes(self) -> int:
        """How much may be allocated at once as huge pages: nothing where room is scarce, or the system has none."""
        stretch = min(_STRETCH_BYTES, self._taken_bytes // _STRETCH_SHARE) // HUGE_BYTES * HUGE_BYTES
        if not stretch or not self._budget.is_plenty or not self._window.has_huge:
            return 0
        end = aligned(self._tails[MEMORY].end) + stretch
        return stretch if self._window.holds(end) and end <= self._parts_end else 0

    def fill(self, places: Sequence[tuple[Place, int]], content: memoryview) -> None:
        """Write what places were reserved for; several threads may at once. Raises OSError when the system refuses.

        Args:
            places: each with where its part begins in `content`, in that order.
            content: what lies side by side in both is copied at once.
        """
        there: list[tuple[Extent, int]] = []
        made = range(0)
        for place, offset in places:
            file, position, size_bytes = place.extent
            if place.stretch_bytes:
                made = self._made(range(position, position + place.stretch_bytes), [other for other, _ in places])
            is_there = place.is_there or position in made
            if not is_there or not self._window.holds(position + size_bytes):
                began = monotonic_s()
                self._write(file, position, content[offset : offset + size_bytes])
                if not is_there and size_bytes == CHUNK_BYTES:
                    self._window.small_pages_took(monotonic_s() - began, size_bytes)
                continue
            self._window.touch(position, size_bytes)
            there.append((place.extent, offset))
        for extent, offset in joined(there):
            self._window.write(extent.position, content[offset : offset + extent.size_bytes])

    def _made(self, stretch: range, places: Iterable[Place]) -> range:
        """Allocate a stretch as huge pages, or nothing of it; what its last place leaves is spare then, or a hole."""
        free = max(place.extent.position for place in places if place.extent.position in stretch) + CHUNK_BYTES
        if self._window.allocate_huge(stretch.start, len(stretch)):
            self._tails[MEMORY].spare += range(stretch.stop - CHUNK_BYTES, free - 1, -CHUNK_BYTES)  # the first one last
            return stretch
        self._punch(MEMORY, free, stretch.stop - free)
        return range(0)

    def _append_to_spill(self, content: memoryview) -> Extent:
        size_bytes = content.nbytes
        spill, tail = self._spill(), self._tails[SPILL]
        try:
            if spill is not None and size_bytes == CHUNK_BYTES and tail.spare:
                return self._write(SPILL, tail.spare.pop(), content)
            if spill is None or self._spill_left_bytes(spill) < pages(size_bytes):
                raise NoRoomError(size_bytes, self.room_bytes(), self._why_no_spill())
            extent = self._write(SPILL, tail.end, content)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}:
                raise
            why = f"writing to the spill folder failed: {error.strerror}"
            raise NoRoomError(size_bytes, self.room_bytes(), why) from error
        tail.end += pages(size_bytes)
        return extent

    def commit(self, index: bytes) -> Extent:
        """Make `index` the one that stands. What only the one before referred to is the caller's to `release`."""
        extent = self.append(memoryview(index), must=True)
        self._sequence += 1
        block = _SUPERBLOCK.pack(
            _MAGIC, _VERSION, extent.file, self._sequence, extent.position, extent.size_bytes, digest_of(index)
        )
        _pwrite(self.descriptors()[0], memoryview(block + digest_of(block)), self._sequence % 2 * _SLOT_BYTES)
        return extent

    def keep_spare(self, spare_bytes: int) -> None:
        """Give back what was kept to be overwritten, but for `spare_bytes`, or half of it if that is more."""
        for file, tail in enumerate(self._tails):
            keep = max(spare_bytes // CHUNK_BYTES, len(tail.spare) // 2)
            self._give_back(Extent(file, position, CHUNK_BYTES) for position in tail.spare[keep:])
            del tail.spare[keep:]

    def release(self, extents: Iterable[Extent], spare_bytes: int = 0) -> None:
        """Give extents back to the system.

        Up to `spare_bytes` stay, to be overwritten: new memory costs three times what memory costs that is there.
        """
        given_back = []
        for extent in extents:
            spare = self._tails[extent.file].spare
            if extent.size_bytes == CHUNK_BYTES and CHUNK_BYTES * (len(spare) + 1) <= spare_bytes:
                spare.append(extent.position)
            else:
                given_back.append(extent)
        self._give_back(given_back)

    def _give_back(self, extents: Iterable[Extent]) -> None:
        """What lies side by side goes at once: a huge page, of which a part stays, is taken apart."""
        runs: list[list[int]] = []
        for file, position, size_bytes in sorted(extents):
            if file == MEMORY:
                self._window.forget(position)
            if runs and runs[-1][0] == file and runs[-1][2] == position:
                runs[-1][2] += pages(size_bytes)
            else:
                runs.append([file, position, position + pages(size_bytes)])
        for file, position, end in runs:
            self._punch(file, position, end - position)
        self._remember((position, end) for file, position, end in runs if file == MEMORY)

    def release_all_but(self, live: Iterable[Extent]) -> None:
        """Give back whatever lies between extents in use, such as what a killed process left."""
        ends = [PAGE_BYTES, 0]
        holes: list[tuple[int, int]] = []
        for file, position, size_bytes in sorted(live):
            if position > ends[file]:
                self._punch(file, ends[file], position - ends[file])
                holes += [(ends[file], position)] if file == MEMORY else []
            ends[file] = max(ends[file], position + pages(size_bytes))
        for file, end in enumerate(ends):
            fd = self._fds[file]
            if fd is not None and os.fstat(fd).st_size > end:
                os.ftruncate(fd, end)
            self._tails[file] = _Tail(end)
        self._holes = Holes()
        self._remember(holes)

    def _spill(self) -> int | None:
        if self._fds[SPILL] is None:
            self._fds[SPILL] = self._room.open_spill()
        return self._fds[SPILL]

    def _why_no_spill(self) -> str:
        if self._length_left_bytes < self._budget.left_bytes:  # the spill file has the same limit
            return _limit_of_files(self._largest_file_bytes)
        return self._room.why_no_spill if self._fds[SPILL] is None else "the spill folder's disk included"

    def _write(self, file: int, position: int, content: memoryview) -> Extent:
        fd = self._fds[file]
        if fd is None:
            raise ValueError("the arena is closed")
        _pwrite(fd, content, position)
        return Extent(file, position, content.nbytes)

    def _punch(self, file: int, position: int, size_bytes: int) -> None:
        fd = self._fds[file]
        if fd is None or not size_bytes:
            return
        if _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, position, size_bytes) and ctypes.get_errno() != errno.EOPNOTSUPP:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        if file == MEMORY:
            self._budget.give_back(size_bytes)


def empty(descriptors: Sequence[int]) -> None:
    """Give back the memory that a saved state's files take, whoever else has them open. Raises OSError.

    Nothing can be restored from them then: the process that saves there must not go on from it (`Saver.drops`).
    """
    memory_fd = descriptors[0]
    if _libc.fallocate(memory_fd, _PUNCH_HOLE_KEEP_SIZE, 0, pages(os.fstat(memory_fd).st_size)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def largest_file_bytes() -> int:
    """How large a file this process may write, one in memory too (setrlimit(2), RLIMIT_FSIZE)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _limit_of_files(limit_bytes: int) -> str:
    return f"a file of this process may have {format_bytes(limit_bytes)} at most, see `ulimit -f`"


def _pwrite(fd: int, content: memoryview, position: int) -> None:
    done = 0
    try:
        while done < content.nbytes:
            done += os.pwrite(fd, content[done:], position + done)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise OSError(errno.EFBIG, _limit_of_files(largest_file_bytes())) from None
