"""New memory for saved state comes as huge pages where the system makes them, and as small ones where it does not."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import random
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nls_jupyter import saved_state
from nls_jupyter.saved_state import window
from nls_jupyter.saved_state.parallel import SWITCH
from nls_jupyter.saved_state.window import HUGE_BYTES, Window
from saved_state_roundtrip import restore

MIB = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_as_it_is = window._libc


def why_no_huge_pages():
    """What this system says to one that is asked for as the manual page has it; `None` where it makes it."""
    _libc.mmap.restype = ctypes.c_void_p
    fd = os.memfd_create("probe")
    try:
        os.truncate(fd, HUGE_BYTES)
        os.pwrite(fd, b"\0", 0)
        anywhere = _libc.mmap(None, ctypes.c_size_t(2 * HUGE_BYTES), 0, 0x22, -1, ctypes.c_long(0))
        address = (anywhere + HUGE_BYTES - 1) // HUGE_BYTES * HUGE_BYTES
        shared = mmap.MAP_SHARED | 0x10
        _libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(HUGE_BYTES), 3, shared, fd, ctypes.c_long(0))
        refused = _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(HUGE_BYTES), 25)
        reason = os.strerror(ctypes.get_errno()) if refused else None
        _libc.munmap(ctypes.c_void_p(anywhere), ctypes.c_size_t(2 * HUGE_BYTES))
        return reason
    finally:
        os.close(fd)


def noise(size_bytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


def huge_bytes():
    """What this process has of memory files of saved state as huge pages."""
    parts = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    ours = [part for part in parts if "memfd:nls-saved-state" in part.splitlines()[0]]
    return sum(int(kib) << 10 for part in ours for kib in re.findall(r"ShmemPmdMapped: +(\d+) kB", part))


def memory_bytes(saver):
    return os.fstat(saver.descriptors()[0]).st_blocks * 512


class Refusing:
    """A system that makes huge pages now and then, if at all; says `number` where it does not."""

    def __init__(self, monkeypatch, number, times):
        self._asked, self._number, self._times = window._libc.madvise, number, times
        self.refused = 0
        monkeypatch.setattr(window, "_libc", self)

    def __getattr__(self, name):
        return getattr(_as_it_is, name)

    def madvise(self, address, size_bytes, advice):
        if advice == window._COLLAPSE and next(self._times):
            # What was asked for in one call may be there in part.
            if size_bytes > HUGE_BYTES:
                self._asked(address, HUGE_BYTES, advice)
            self.refused += 1
            ctypes.set_errno(self._number)
            return -1
        return self._asked(address, size_bytes, advice)


def always():
    while True:
        yield True


def drawn(seed):
    generator = random.Random(seed)
    while True:
        yield generator.random() < 0.5


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors may have other huge pages")
def test_a_large_state_lies_in_huge_pages(monkeypatch):
    if reason := why_no_huge_pages():
        pytest.skip(f"this system makes no huge pages of memory files: {reason}")
    monkeypatch.setattr(window, "_AT_FIRST_S", 1e9)  # however slow it is just now
    names = {"a": noise(64 * MIB)}
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save(names, cell=None)
        assert huge_bytes() >= 60 * MIB
        assert memory_bytes(saver) < 84 * MIB
        names["a"] += 1
        saver.save(names, cell=None)
        assert huge_bytes() >= 120 * MIB
        again = {}
        assert not restore(saver.descriptors(), again).missing
    assert np.array_equal(again["a"], names["a"])
    assert huge_bytes() == 0


def test_a_small_state_takes_no_more_than_a_huge_page_beside_it():
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save({"a": noise(MIB + 5)}, cell=None)
        assert memory_bytes(saver) <= 2 * MIB + 64 * 1024
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save({"a": [1, 2], "b": noise(1000)}, cell=None)
        assert memory_bytes(saver) <= 64 * 1024


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EAGAIN, errno.ENOMEM])
def test_a_system_that_makes_none_is_not_asked_again_and_again(monkeypatch, number):
    refusing = Refusing(monkeypatch, number, always())
    names = {"a": noise(40 * MIB)}
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save(names, cell=None)
        asked = refusing.refused
        assert 1 <= asked <= 5 + 4  # of each of four threads, one more may be under way
        names["a"] += 1
        saver.save(names, cell=None)
        assert refusing.refused == asked
        assert memory_bytes(saver) < 82 * MIB  # nothing stays of what was made in part
        again = {}
        assert not restore(saver.descriptors(), again).missing
    assert np.array_equal(again["a"], names["a"])


def extents(saver):
    committed, arena = saver._committed, saver._committed.arena
    live = [chunk.extent for chunk in committed.blobs.known.values() if chunk.extent.file == 0]
    places = [(extent.position, extent.size_bytes) for extent in (*live, committed._index)]
    return sorted([*places, *((position, MIB) for position in arena._tails[0].spare)])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_system_makes_no_place_is_given_twice_and_none_is_lost(monkeypatch, seed):
    monkeypatch.setenv(SWITCH, "4")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    Refusing(monkeypatch, errno.EAGAIN, drawn(seed))
    monkeypatch.setattr(window, "_FAILURE_S", 0.0)
    generator = random.Random(seed)
    names = {}
    with contextlib.closing(saved_state.Saver()) as saver:
        for number in range(12):
            name = generator.choice("abcd")
            if generator.random() < 0.2:
                names.pop(name, None)
            else:
                names[name] = noise(generator.randrange(30 * MIB), seed=100 * seed + number)
            saver.save(names, cell=None)
            places = extents(saver)
            assert all(one + size <= other for (one, size), (other, _) in pairwise(places))
            taken = sum(-(-size // 4096) * 4096 for _, size in places)
            assert memory_bytes(saver) <= taken + 4096
            again = {}
            assert not restore(saver.descriptors(), again).missing
            assert names.keys() == again.keys()
            assert all(np.array_equal(value, again[key]) for key, value in names.items())


def test_a_window_that_grows_keeps_what_was_written_and_begins_where_a_huge_page_may():
    fd = os.memfd_create("test")
    seen = Window(fd)
    try:
        for size_bytes in (MIB, 100 * MIB, 300 * MIB):
            assert seen.reach(size_bytes)
            assert seen._address % HUGE_BYTES == 0
            position = size_bytes - MIB
            os.posix_fallocate(fd, position, MIB)
            seen.write(position, memoryview(noise(MIB, seed=size_bytes)))
        for size_bytes in (MIB, 100 * MIB, 300 * MIB):
            assert os.pread(fd, MIB, size_bytes - MIB) == noise(MIB, seed=size_bytes).tobytes()
        before = Path("/proc/self/maps").read_text().count("memfd:test")
        assert before == 1
    finally:
        seen.close()
        os.close(fd)
    assert "memfd:test" not in Path("/proc/self/maps").read_text()
