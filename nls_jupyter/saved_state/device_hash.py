"""Whether memory of a Gpu has changed, found out there: reading it on the device is far cheaper than copying it away.

Each chunk's fingerprint is the sum, in two lanes, of its words after a mixing that depends on the word's position. Two
contents of a chunk have the same one with a probability of 2**-128, as long as nobody looks for such a pair. Where the
last word is not whole, zeros are missing to it. `fused_hash.py` makes the same with one launch.
"""

from __future__ import annotations

import struct
from typing import Any

from nls_jupyter.saved_state import fused_hash
from nls_jupyter.saved_state.arena import CHUNK_BYTES

_WORD_BYTES = 8
_ROW = struct.Struct("<qq")
_CHUNK_WORDS = CHUNK_BYTES // _WORD_BYTES
# So many at once: intermediate results take some times as much, on a Gpu that may be nearly full.
_CHUNKS_AT_ONCE = 8
_LANES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
# The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def of_tensor(content: Any) -> list[bytes] | None:
    """Of a storage, as a flat tensor of bytes; `None` where it does not begin at a word."""
    if content.data_ptr() % _WORD_BYTES:
        return None
    if (found := fused_hash.of_tensor(content)) is not None:
        return found
    import torch

    whole = content.numel() // _WORD_BYTES * _WORD_BYTES
    return tensor_fingerprints(content[:whole].view(torch.int64), content[whole:])


def of_block(cupy: Any, pointer: Any, size_bytes: int) -> list[bytes] | None:
    """Of memory of CuPy's current device, from a pointer on; `None` where that is not at a word."""
    if pointer.ptr % _WORD_BYTES:
        return None
    if (found := fused_hash.of_block(cupy, pointer.ptr, size_bytes)) is not None:
        return found
    whole, rest = divmod(size_bytes, _WORD_BYTES)
    words = cupy.ndarray((whole,), "u8", memptr=pointer, strides=(_WORD_BYTES,))
    behind = pointer + whole * _WORD_BYTES
    return fingerprints(cupy, words, cupy.ndarray((rest,), "u1", memptr=behind, strides=(1,)) if rest else None)


def fingerprints(xp: Any, words: Any, tail: Any = None) -> list[bytes]:
    """Of each chunk of a flat array of uint64, the last one shorter.

    Args:
        xp: the array's module: CuPy, or NumPy.
        words: the memory.
        tail: the bytes behind the last whole word, if there are any.
    """
    position = xp.arange(1, _CHUNK_WORDS + 1, dtype=xp.uint64)
    keys = [position * xp.uint64(lane) for lane in _LANES]
    whole = words.size // _CHUNK_WORDS
    found = []
    for first in range(0, whole, _CHUNKS_AT_ONCE):
        count = min(_CHUNKS_AT_ONCE, whole - first)
        rows = words[first * _CHUNK_WORDS : (first + count) * _CHUNK_WORDS].reshape(count, _CHUNK_WORDS)
        found.append(_sums(xp, rows, keys))
    rest = words[whole * _CHUNK_WORDS :]
    if tail is not None and tail.size:
        last = xp.zeros(_WORD_BYTES, "u1")
        last[: tail.size] = tail[:]
        rest = xp.concatenate([rest, last.view("u8")])
    if rest.size:
        found.append(_sums(xp, rest.reshape(1, -1), [key[: rest.size] for key in keys]))
    return [row.tobytes() for sums in found for row in _on_host(sums)]


def tensor_fingerprints(words: Any, tail: Any = None) -> list[bytes]:
    """The same of a flat PyTorch tensor of int64, on its device, and one of bytes behind it."""
    import torch

    position = torch.arange(1, _CHUNK_WORDS + 1, device=words.device)
    keys = [position * _signed(lane) for lane in _LANES]
    whole = words.numel() // _CHUNK_WORDS
    parts = list(words[: whole * _CHUNK_WORDS].view(-1, _CHUNK_WORDS).split(_CHUNKS_AT_ONCE)) if whole else []
    rest = words[whole * _CHUNK_WORDS :]
    if tail is not None and tail.numel():
        last = torch.zeros(_WORD_BYTES, dtype=torch.uint8, device=words.device)
        last[: tail.numel()] = tail
        rest = torch.cat([rest, last.view(torch.int64)])
    found = []
    for rows in (*parts, rest.view(1, -1)):
        if rows.numel():
            sums = [_mixed_tensor(rows ^ key[: rows.shape[1]]).sum(dim=1) for key in keys]
            found.append(torch.stack(sums, dim=1))
    return [_ROW.pack(*row) for sums in found for row in sums.tolist()]


def _mixed_tensor(words: Any) -> Any:
    """As `_mixed`. PyTorch has no unsigned shift; its products wrap as unsigned ones do."""
    for shift, factor in ((30, _FIRST), (27, _SECOND), (31, None)):
        words ^= (words >> shift) & ((1 << (64 - shift)) - 1)
        if factor is not None:
            words *= _signed(factor)
    return words


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _sums(xp: Any, rows: Any, keys: list[Any]) -> Any:
    return xp.stack([_mixed(xp, rows ^ key).sum(axis=1, dtype=xp.uint64) for key in keys], axis=1)


def _mixed(xp: Any, words: Any) -> Any:
    """`words` is this function's own to change."""
    words ^= words >> xp.uint64(30)
    words *= xp.uint64(_FIRST)
    words ^= words >> xp.uint64(27)
    words *= xp.uint64(_SECOND)
    words ^= words >> xp.uint64(31)
    return words


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array
