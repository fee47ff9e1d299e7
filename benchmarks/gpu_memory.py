"""Saved state of one library's GPU memory beside page-locked copies of as much, in one run; rates in GiB/s.

    python benchmarks/gpu_memory.py --library cupy --gib 10      # or torch; without a GPU: numpy, or torch --cpu

The unchanged check is taken both ways: with one launch over all memory, and with many (NLS_DEVICE_HASH=launches). Saves
and restores are taken with as many threads as they have, and with sixteen (NLS_SAVE_THREADS).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from machine import machine, report, require_gpu

from nls_jupyter.saved_state import Saver, fused_hash, parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIB = 1 << 30
ODD = 0x9E3779B97F4A7C15
ROUNDS = 5
CHANGES = 3
MANY_THREADS = "16"
# Words that are looked at together.
PIECE = 1 << 24
# What the issue of a copy costs besides is small only above this.
PEER_BYTES = GIB


class Library(Protocol):
    """What is measured of each library."""

    def words(self, first: int, last: int) -> Any:
        """Words that nothing can shrink, each known by its place."""

    def wait(self) -> None:
        """Until the device has done all."""

    def drop(self) -> None:
        """Give back what nobody holds."""

    def same(self, one: Any, other: Any) -> bool:
        """Whether all words are equal."""

    def copies(self, words: Any) -> dict[str, Callable[[], object]]:
        """`down` and `up`: a copy of `words` to page-locked memory, and back."""


class Arrays:
    """Of NumPy and CuPy."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def words(self, first: int, last: int) -> Any:
        words = self.xp.arange(first, last, dtype=self.xp.uint64)
        words *= self.xp.uint64(ODD)
        return words

    def wait(self) -> None:
        if self.xp is not np:
            self.xp.cuda.runtime.deviceSynchronize()

    def drop(self) -> None:
        gc.collect()
        if self.xp is not np:
            self.xp.get_default_memory_pool().free_all_blocks()

    def same(self, one: Any, other: Any) -> bool:
        return bool((one == other).all())

    def copies(self, words: Any) -> dict[str, Callable[[], object]]:
        if self.xp is np:
            host = words.copy()
            return {"down": lambda: np.copyto(host, words), "up": lambda: np.copyto(words, host)}
        host = np.frombuffer(self.xp.cuda.alloc_pinned_memory(words.nbytes), words.dtype, words.size)
        return {"down": lambda: words.get(out=host), "up": lambda: words.set(host)}


class Tensors:
    """Of PyTorch."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch = torch
        self.device = device

    def words(self, first: int, last: int) -> Any:
        words = self.torch.arange(first, last, dtype=self.torch.int64, device=self.device)
        words *= ODD >> 1
        return words

    def wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def drop(self) -> None:
        gc.collect()
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def same(self, one: Any, other: Any) -> bool:
        return bool(self.torch.equal(one, other))

    def copies(self, words: Any) -> dict[str, Callable[[], object]]:
        host = self.torch.empty(words.shape, dtype=words.dtype, pin_memory=self.device == "cuda")
        return {"down": lambda: host.copy_(words), "up": lambda: words.copy_(host)}


def seconds(library: Library, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    library.wait()
    return time.perf_counter() - began


def best(library: Library, work: Callable[[], object]) -> float:
    """The fastest of some rounds, after one that does not count."""
    seconds(library, work)
    return min(seconds(library, work) for _ in range(ROUNDS))


def peers(library: Library, size_bytes: int) -> dict[str, float]:
    """Seconds that page-locked copies of so much take, down and up, from what a smaller piece takes."""
    words = library.words(0, min(size_bytes, PEER_BYTES) // 8)
    library.wait()
    part = min(size_bytes, PEER_BYTES) / size_bytes
    taken = {name: best(library, copy) / part for name, copy in library.copies(words).items()}
    del words
    library.drop()
    return taken


def saves(library: Library, saver: Saver, size_bytes: int) -> dict[str, float]:
    """Seconds of each kind of save."""
    words = library.words(0, size_bytes // 8)
    library.wait()
    names = {"words": words}

    def save() -> None:
        manifest = saver.save(names, cell=None)
        if manifest.missing:
            raise RuntimeError(f"not saved: {manifest.missing}")

    taken = {"save_new": seconds(library, save), "unchanged": best(library, save)}
    with switched(fused_hash.SWITCH, "launches"):
        taken["unchanged_by_many_launches"] = best(library, save)
    words[5] += 1
    taken["one_word_changed"] = seconds(library, save)
    words[5] -= 1

    def changed() -> float:
        nonlocal words
        words += 1
        library.wait()
        return seconds(library, save)

    # From the second time on there is host memory for the old and the new.
    changed()
    taken["save_changed"] = changed()
    with switched(parallel.SWITCH, MANY_THREADS):
        taken["save_changed_by_many_threads"] = changed()
    return taken


@contextlib.contextmanager
def switched(name: str, value: str) -> Iterator[None]:
    """The other way, meanwhile."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def restores(library: Library, saver: Saver, size_bytes: int) -> dict[str, float]:
    """Seconds that it takes to bring them back. Raises RuntimeError where a bit differs."""
    library.drop()
    with switched(parallel.SWITCH, MANY_THREADS), contextlib.closing(Saver()) as other:
        many = seconds(library, lambda: other.restore(saver.descriptors(), {}))
    library.drop()
    restored: dict[str, Any] = {}
    with contextlib.closing(Saver()) as other:
        taken = seconds(library, lambda: other.restore(saver.descriptors(), restored))
        count = size_bytes // 8
        for first in range(0, count, PIECE):
            last = min(first + PIECE, count)
            expected = library.words(first, last)
            expected += CHANGES
            if not library.same(restored["words"][first:last], expected):
                raise RuntimeError("what came back is not what was saved")
    return {"restore": taken, "restore_by_many_threads": many}


def measure(library: Library, size_bytes: int) -> dict[str, Any]:
    copies = peers(library, size_bytes)
    with contextlib.closing(Saver()) as saver:
        taken = saves(library, saver, size_bytes)
        taken |= restores(library, saver, size_bytes)
    peer = {name: copies["up"] for name in taken if name.startswith("restore")}
    rates = {f"{name}_gib_s": size_bytes / GIB / value for name, value in {**taken, **copies}.items()}
    ratios = {f"{name}_speed_over_copy": peer.get(name, copies["down"]) / value for name, value in taken.items()}
    found = {**{f"{name}_s": value for name, value in taken.items()}, **rates, **ratios}
    return {"bytes": size_bytes, **{name: round(value, 4) for name, value in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=("cupy", "torch", "numpy"), default="cupy")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--cpu", action="store_true", help="of PyTorch: to try it out without a GPU")
    options = parser.parse_args()
    if options.library != "numpy" and not options.cpu:
        require_gpu(options.library)
    if options.library == "torch":
        library: Library = Tensors("cpu" if options.cpu else "cuda")
    elif options.library == "cupy":
        import cupy

        library = Arrays(cupy)
    else:
        library = Arrays(np)
    figures = measure(library, int(options.gib * GIB))
    report(f"gpu_memory_{options.library}_{options.gib:g}", figures, machine())


if __name__ == "__main__":
    main()
