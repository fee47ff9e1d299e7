"""Ways between a GPU's memory and a memory file, beside page-locked copies of as much; rates in GiB/s.

    python benchmarks/gpu_ways.py --gib 2

Saved state goes by way of a page-locked piece for each thread. Its parts are taken alone (`down`, `digest`, `store` of
a save, `load` or `look`, `digest`, `up` of a restore) and together (`save`, `restore`), by the size of the pieces and
the number of threads; so is what new pages of the file cost (`populate`, `huge`), and copies straight to and from pages
of it that the driver was told of (`direct`), which the project does not do.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import xxhash
from machine import machine, report, require_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[int, int], object]

MIB, GIB = 1 << 20, 1 << 30
THREADS = (1, 4, 8)
PIECES_MIB = (1, 8)
DIRECT_MIB = (1, 4, 64)
POPULATE_WRITE, COLLAPSE, FIXED = 23, 25, 0x10
HUGE = 2 * MIB
ROUNDS = 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Cuda:
    """The driver's calls that are needed, from any thread. Raises RuntimeError with the call's name and code."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)

    def _call(self, name: str, *arguments: Any) -> None:
        if self._context:
            self._library.cuCtxSetCurrent(self._context)
        if code := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name}: {code}")

    def on_device(self, size_bytes: int) -> int:
        """New memory."""
        place = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size_bytes))
        return place.value

    def page_locked(self, size_bytes: int) -> int:
        """New host memory."""
        place = ctypes.c_void_p()
        self._call("cuMemAllocHost_v2", ctypes.byref(place), ctypes.c_size_t(size_bytes))
        return place.value or 0

    def register(self, host: int, size_bytes: int) -> None:
        """Lock pages that are there."""
        self._call("cuMemHostRegister_v2", ctypes.c_void_p(host), ctypes.c_size_t(size_bytes), 0)

    def down(self, host: int, device: int, size_bytes: int) -> None:
        """Copy from the device."""
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(host), ctypes.c_uint64(device), ctypes.c_size_t(size_bytes))

    def up(self, device: int, host: int, size_bytes: int) -> None:
        """Copy to the device."""
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(device), ctypes.c_void_p(host), ctypes.c_size_t(size_bytes))


def seconds(threads: int, size_bytes: int, piece_bytes: int, work: Work) -> float:
    """Of `work(thread, offset)` on all pieces."""
    numbers = itertools.count()

    def some(thread: int) -> None:
        while (offset := next(numbers) * piece_bytes) < size_bytes:
            work(thread, offset)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(some, range(threads)))
    return time.perf_counter() - began


class Ways:
    """All of them, of one size."""

    def __init__(self, cuda: Cuda, size_bytes: int) -> None:
        self.cuda = cuda
        self.size = size_bytes
        self.device = cuda.on_device(size_bytes)
        self.staging = [cuda.page_locked(max(PIECES_MIB) * MIB) for _ in range(max(THREADS))]
        self.fd, self.file = self._mapped()

    def _mapped(self, begins_at: int = mmap.PAGESIZE) -> tuple[int, int]:
        """A new file, and where it is mapped: at a multiple of `begins_at`."""
        fd = os.memfd_create("nls-ways", os.MFD_CLOEXEC)
        os.ftruncate(fd, self.size)
        anywhere = _libc.mmap(None, self.size + begins_at, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0) or 0
        file = -(-anywhere // begins_at) * begins_at
        return fd, _libc.mmap(file, self.size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | FIXED, fd, 0) or 0

    def rate(self, threads: int, piece: int, work: Work) -> float:
        """The best of some rounds."""
        return round(self.size / min(seconds(threads, self.size, piece, work) for _ in range(ROUNDS)) / GIB, 2)

    def peers(self) -> dict[str, float]:
        """Page-locked copies."""
        host, piece, cuda = self.cuda.page_locked(self.size), 256 * MIB, self.cuda
        return {
            "down": self.rate(1, piece, lambda _, at: cuda.down(host + at, self.device + at, piece)),
            "up": self.rate(1, piece, lambda _, at: cuda.up(self.device + at, host + at, piece)),
        }

    def populate(self) -> dict[int, float]:
        """New pages, by the number of threads; then those of the file that the other ways use."""
        found = {}
        for threads in THREADS:
            fd, file = self._mapped()
            found[threads] = self._populated(threads, file)
            _libc.munmap(file, self.size)
            os.close(fd)
        self._populated(max(THREADS), self.file)
        return found

    def _populated(self, threads: int, file: int) -> float:
        piece = 16 * MIB
        took = seconds(threads, self.size, piece, lambda _, at: _libc.madvise(file + at, piece, POPULATE_WRITE))
        return round(self.size / took / GIB, 2)

    def huge(self) -> dict[int, float | None]:
        """New pages as saved state has them where the system makes huge ones; `None` where it refuses."""
        return {threads: self._collapsed(threads) for threads in THREADS}

    def _collapsed(self, threads: int) -> float | None:
        fd, file = self._mapped(HUGE)
        refused = 0

        def make(_: int, at: int) -> None:
            nonlocal refused
            os.pwrite(fd, b"\0", at)
            refused += _libc.madvise(file + at, HUGE, COLLAPSE) != 0

        took = seconds(threads, self.size, HUGE, make)
        _libc.munmap(file, self.size)
        os.close(fd)
        return None if refused else round(self.size / took / GIB, 2)

    def staged(self, piece: int) -> dict[str, dict[int, float]]:
        """By way of page-locked pieces of that size, by the number of threads."""
        cuda, staging, file, device = self.cuda, self.staging, self.file, self.device
        view = (ctypes.c_ubyte * piece).from_address

        def digest(thread: int, _: int) -> None:
            hashed = xxhash.xxh3_128()
            hashed.update(view(staging[thread]))
            hashed.digest()

        parts: dict[str, Work] = {
            "down": lambda thread, at: cuda.down(staging[thread], device + at, piece),
            "digest": digest,
            "store": lambda thread, at: ctypes.memmove(file + at, staging[thread], piece),
            "load": lambda thread, at: os.preadv(self.fd, [view(staging[thread])], at),
            "look": lambda thread, at: ctypes.memmove(staging[thread], file + at, piece),
            "up": lambda thread, at: cuda.up(device + at, staging[thread], piece),
        }

        def one_after_another(*steps: str) -> Work:
            return lambda thread, at: [parts[step](thread, at) for step in steps]

        parts["save"] = one_after_another("down", "digest", "store")
        parts["restore"] = one_after_another("load", "digest", "up")
        parts["restore_mapped"] = one_after_another("look", "digest", "up")
        return {name: {threads: self.rate(threads, piece, work) for threads in THREADS} for name, work in parts.items()}

    def direct(self) -> dict[str, Any]:
        """To and from pages of the file that the driver has locked; its time for that in seconds a GiB."""
        cuda, file, device = self.cuda, self.file, self.device
        took = seconds(1, self.size, self.size, lambda _, at: cuda.register(file + at, self.size))
        found: dict[str, Any] = {"register_s_per_gib": round(took / (self.size / GIB), 3)}

        def copy(way: Callable[[int, int, int], None], to: int, of: int, piece: int) -> float:
            return self.rate(1, piece, lambda _, at: way(to + at, of + at, piece))

        for mib in DIRECT_MIB:
            found[f"down_{mib}"] = copy(cuda.down, file, device, mib * MIB)
            found[f"up_{mib}"] = copy(cuda.up, device, file, mib * MIB)
        return found


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=2)
    options = parser.parse_args()
    require_gpu()
    ways = Ways(Cuda(), options.gib * GIB)
    figures = {"gib": options.gib, "copies": ways.peers(), "populate": ways.populate(), "huge": ways.huge()}
    figures |= {f"pieces_of_{mib}_mib": ways.staged(mib * MIB) for mib in PIECES_MIB}
    report("gpu_ways", {**figures, "direct": ways.direct()}, machine())


if __name__ == "__main__":
    main()
