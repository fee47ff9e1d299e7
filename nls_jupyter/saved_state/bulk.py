"""Big containers of rows, looked at all at once: a hundred thousand small dicts, or numbers, that nobody shares.

It is asked of all first whether they hold nothing but values, and whether the container alone holds them: then each is
there once, and nobody else leads to it. What tells one look from the next is what the rows hold, as the C pickler
writes it without a memo, which takes a fifth of what pickling them takes. Nor does their saved state need a memo, but
for the words that many of them share.
"""

from __future__ import annotations

import gc
import io
import pickle
import random
import sys
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import xxhash

from nls_jupyter.saved_state.room import resident_bytes
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

# The pickler writes these itself, and they are told apart by what they are.
_VALUES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})
_ROWS: frozenset[type] = frozenset({dict, list, tuple})
_TEXTS: frozenset[type] = frozenset({str, bytes})
# What is told of an object that one list holds.
_HELD_ONCE = sum(map(sys.getrefcount, [object()]))
# Of more than this it is asked whether it can be: what is there once is written with at most twice its size in memory.
_MUCH_BYTES = 1 << 26
# As many rows are asked for their words, drawn at random: an even spread may fall in step with them.
_ASKED = 1_000
# Of so many bytes one may be of a text that is shared and not among the words, and is written as often as it is there.
_RARE = 100
# Those who were asked speak for all as long as these have not twice as much, and this.
_UNTOLD_BYTES = 1 << 20


class Flat(NamedTuple):
    """A container whose rows or values are plain and its own.

    Attributes:
        digest: of what it holds.
        size_bytes: of its pickle without a memo.
    """

    digest: bytes
    size_bytes: int


class Bulk:
    """The looks of one process.

    Args:
        tick: called now and then; what it raises ends the look.
    """

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick

    def look_at(self, container: Collection[Any]) -> Flat | None:
        """What a list, a tuple or a dict holds that is flat; `None` for any other one."""
        return self._written(container) if _is_flat(container) else None

    def _written(self, container: Collection[Any]) -> Flat | None:
        digest = _Digest(self._tick)
        try:
            _write(container, digest)
        except SaveEndsError:
            raise
        except Exception:  # noqa: BLE001 - it holds something else, or goes too deep, or one text again and again
            return None
        return Flat(digest.digest(), digest.size_bytes)


def _write(container: Collection[Any], file: Any) -> None:
    pickler = _Plain(file, protocol=4)  # which has no way of its own for a bytearray
    pickler.fast = True
    pickler.dump(container)


class _Plain(pickle.Pickler):
    """Writes what Python itself is made of, and runs nobody's code."""

    def reducer_override(self, _: Any) -> NoReturn:
        raise pickle.PicklingError


class _Digest(io.RawIOBase):
    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._hash = xxhash.xxh3_128()
        self._most_bytes = _MUCH_BYTES
        self.size_bytes = 0

    def write(self, content: Any, /) -> int:
        self._tick()
        self.size_bytes += len(content)
        if self.size_bytes > self._most_bytes:
            self._most_bytes = _MUCH_BYTES + 2 * resident_bytes()
            if self.size_bytes > self._most_bytes:
                raise pickle.PicklingError("a part of it is there more than once")
        self._hash.update(content)
        return len(content)

    def digest(self) -> bytes:
        return self._hash.digest()


def _is_flat(container: Collection[Any]) -> bool:
    """Whether it holds nothing but values, or rows of nothing but values that nobody else holds.

    Rows that the garbage collector need not look at may hold tuples of values, too.
    """
    if type(container) is dict and not set(map(type, container)) <= _VALUES:
        return False
    if (kind := _kind_of_its_own(container)) is None:
        return False
    rows = container.values() if type(container) is dict else container
    if kind not in _ROWS or (kind is dict and not any(map(gc.is_tracked, rows))):
        return True
    if not set(map(type, chain.from_iterable(rows))) <= _VALUES:
        return False
    return kind is not dict or set(map(type, chain.from_iterable(map(dict.values, rows)))) <= _VALUES


def _kind_of_its_own(container: Collection[Any]) -> type | None:
    """Of what kind its rows are, if nobody else holds one of them, or one of its values; else `None`."""
    rows: Any = list(container.values()) if type(container) is dict else container
    kinds = set(map(type, rows))
    if kinds and kinds <= _VALUES:
        return kinds.pop()
    if len(kinds) != 1 or not kinds <= _ROWS:
        return None
    held = len(rows) * (_HELD_ONCE + (rows is not container))
    return kinds.pop() if sum(map(sys.getrefcount, rows)) == held else None


def words_of(container: Collection[Any], size_bytes: int) -> list[str | bytes] | None:
    """Keys and texts that the rows of a flat container share; `None` where a sample cannot tell them all.

    Texts that are rare among all cannot be told from one that is met once. If of what is written one byte in a hundred
    is of such a text, about as much is shared by rows that were not asked (Good, The population frequencies of species,
    1953).

    Args:
        container: is asked once more whether its rows are its own.
        size_bytes: see `Flat`.
    """
    try:
        return _words_of(container, size_bytes) if _kind_of_its_own(container) is not None else None
    except Exception:  # noqa: BLE001 - another thread is at work on it
        return None


def _words_of(container: Collection[Any], size_bytes: int) -> list[str | bytes] | None:
    chosen = random.Random(0).sample(range(len(container)), min(_ASKED, len(container)))  # noqa: S311 - no secret
    if type(container) is dict:
        asked, keys = _at(chosen, list(container.values())), _at(chosen, list(container))
    else:
        asked, keys = _at(chosen, container), []
    written = io.BytesIO()
    _write([asked, keys], written)
    if size_bytes > 2 * len(container) / len(asked) * written.tell() + _UNTOLD_BYTES:
        return None
    parts = _parts_of(asked)
    if not set(map(type, parts)) <= _VALUES:
        return None
    held = list(map(sys.getrefcount, parts))
    # In the list, and in one place beside it.
    alone = _HELD_ONCE + 1
    shared = {id(part): part for part, holders in zip(parts, held, strict=True) if holders > alone and _is_word(part)}
    met = Counter(map(id, parts))
    once_bytes = sum(len(part) for key, part in shared.items() if met[key] == 1)
    return list(shared.values()) if once_bytes * _RARE <= written.tell() else None


def _at(places: Sequence[int], things: Any) -> list[Any]:
    return [things[place] for place in places]


def _parts_of(rows: list[Any]) -> list[Any]:
    kind = type(rows[0])
    if kind is not dict:
        return list(chain.from_iterable(rows)) if kind in _ROWS else rows
    return [*chain.from_iterable(rows), *chain.from_iterable(map(dict.values, rows))]


def _is_word(part: Any) -> bool:
    """Whether it is a text that is not the same object anyway, as single characters of Latin-1 are."""
    return type(part) in _TEXTS and bool(part) and not (type(part) is str and len(part) == 1 and part <= "\xff")
