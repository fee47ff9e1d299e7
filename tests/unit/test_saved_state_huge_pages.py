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

from left_out import thinned
from nls_jupyter import saved_state
from nls_jupyter.saved_state import arena, budget, window
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
    monkeypatch.setattr(window, "_AT_MOST_S", 1e9)  # however slow it is just now
    names = {"a": noise(200 * MIB)}
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save(names, cell=None)
        assert huge_bytes() >= 100 * MIB
        assert memory_bytes(saver) < 240 * MIB
        names["a"] += 1
        saver.save(names, cell=None)
        assert huge_bytes() >= 200 * MIB
        again = {}
        assert not restore(saver.descriptors(), again).missing
    assert np.array_equal(again["a"], names["a"])
    assert huge_bytes() == 0


@pytest.mark.parametrize("size_bytes", [1000, MIB + 5, 20 * MIB])
def test_a_small_state_takes_nothing_beside_it(size_bytes):
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save({"a": noise(size_bytes)}, cell=None)
        assert memory_bytes(saver) <= size_bytes + 64 * 1024


@pytest.fixture
def eager(monkeypatch):
    """Huge pages for whatever takes a chunk, wherever there is room."""
    monkeypatch.setattr(arena, "_STRETCH_SHARE", 1)
    monkeypatch.setattr(budget, "PLENTY_BYTES", 0)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_fits_is_saved_in_memory_where_room_is_scarce(monkeypatch, seed):
    monkeypatch.setenv(SWITCH, "4")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    generator = random.Random(seed)
    names, size_bytes = {}, 0
    while size_bytes < 40 * MIB:
        names[f"v{len(names)}"] = array = noise(int(generator.choice([0.3, 0.9, 1.5, 3.7, 9.9]) * MIB), seed=len(names))
        size_bytes += array.nbytes
    room = saved_state.MachineRoom(memory_limit_bytes=int(size_bytes * generator.uniform(1.02, 1.1)) + MIB)
    with contextlib.closing(saved_state.Saver(room)) as saver:
        for _ in range(3):
            assert saver.save(names, cell=None).missing == ()
            first = names.pop(next(iter(names)))
            saver.save(names, cell=None)
            names = {"other": first[: first.nbytes // 2] + 1, **names, "more": first[first.nbytes // 2 :] + 1}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EAGAIN, errno.ENOMEM])
@pytest.mark.usefixtures("eager")
def test_a_system_that_makes_none_is_not_asked_again_and_again(monkeypatch, number):
    monkeypatch.setattr(window, "_AT_MOST_S", 0.1)
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


@pytest.mark.parametrize("seed", thinned(range(6), 3, "places in memory of scarce room"))
@pytest.mark.usefixtures("eager")
def test_whatever_the_system_makes_no_place_is_given_twice_and_none_is_lost(monkeypatch, seed):
    monkeypatch.setenv(SWITCH, "4")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    refusing = Refusing(monkeypatch, errno.EAGAIN, drawn(seed))
    monkeypatch.setattr(window, "_FAILURE_S", 0.0)
    monkeypatch.setattr(window, "_AT_MOST_S", 1e9)  # however slow it is just now
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
    assert refusing.refused or why_no_huge_pages()


def test_a_system_that_takes_long_is_left_alone_for_longer_and_longer(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(window, "monotonic_s", lambda: now[0])
    monkeypatch.setattr(window, "_has_huge_pages", lambda: True)
    patience = window._Patience()
    assert patience.is_left
    for _ in range(100):
        patience.lose(-0.01)  # fast for long, which is no reason to wait for longer now
    patience.lose(0.2)
    assert not patience.is_left
    for pause_s in (window._PAUSE_S, 2 * window._PAUSE_S, 4 * window._PAUSE_S):
        now[0] += 0.9 * pause_s
        patience.begin()
        assert not patience.is_left
        now[0] += 0.2 * pause_s
        patience.begin()
        assert patience.is_left
        patience.lose(0.03)
        assert not patience.is_left


def test_what_huge_pages_are_worth_is_what_small_ones_take(monkeypatch):
    monkeypatch.setattr(window, "_has_huge_pages", lambda: True)
    patience = window._Patience()
    patience.made(0.2, 40)  # five milliseconds each, which is too long for what small ones take as a rule
    assert not patience.is_left
    patience.small_ones_took(0.004, MIB)
    assert not patience.is_left  # small ones of as much take longer, but not by far
    for _ in range(30):
        patience.small_ones_took(0.01, MIB)
    assert patience.is_left
    for _ in range(100):
        patience.made(0.2, 40)
    assert patience.is_left
    for _ in range(30):
        patience.small_ones_took(0.0005, MIB)
    patience.made(0.2, 40)
    assert not patience.is_left
    for _ in range(30):
        patience.small_ones_took(0.0005, MIB)
    assert not patience.is_left


def test_a_system_without_huge_pages_is_never_asked(monkeypatch):
    monkeypatch.setattr(window, "_has_huge_pages", lambda: True)
    patience = window._Patience()
    patience.lose(float("inf"))
    for _ in range(30):
        patience.small_ones_took(1.0, MIB)
    assert not patience.is_left


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
