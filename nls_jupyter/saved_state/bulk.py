"""Big containers of rows, looked at all at once: a hundred thousand small dicts, or numbers, that nobody shares.

What tells one look from the next is what the rows hold, as the C pickler writes it without a memo, which takes a fifth
of what pickling them takes. That leaves out which of them are the same object. So it is asked of all first whether the
container alone holds them: then each is there once, and nobody else leads to it. So they need no memo in the saved
state either, where it is most of what pickling costs, but for the words that many of them share.
"""

from __future__ import annotations

import gc
import io
import pickle
import random
import sys
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import xxhash

from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# The pickler writes these itself, and they are told apart by what they are.
_VALUES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})
_ROWS: frozenset[type] = frozenset({dict, list, tuple})
_TEXTS: frozenset[type] = frozenset({str, bytes})
# What is told of an object that one list holds.
_HELD_ONCE = sum(map(sys.getrefcount, [object()]))
# As many rows are asked for their words, drawn at random: an even spread may fall in step with them.
_ASKED = 1_000
# One in so many values may be a shared one that is not among the words, and is written as often as it is there.
_RARE = 100


class Bulk:
    """The looks of one process.

    Args:
        tick: called now and then; what it raises ends the look.
        known: digests of contents that were found to be plain before, and are so again.
    """

    def __init__(self, tick: Callable[[], None], known: set[bytes]) -> None:
        self._tick = tick
        self._known = known

    def digest_of(self, container: Collection[Any]) -> bytes | None:
        """Of a list, a tuple or a dict whose rows or values are plain and its own; `None` for any other one."""
        rows: Any = list(container.values()) if type(container) is dict else container
        kinds = set(map(type, rows))
        if not kinds <= _VALUES:
            if len(kinds) != 1 or not kinds <= _ROWS:
                return None
            held = len(rows) * (_HELD_ONCE + (rows is not container))
            if sum(map(sys.getrefcount, rows)) != held:
                return None
        found = self._written(container)
        if found is not None and found not in self._known:
            if not kinds <= _VALUES and not _is_flat(kinds.pop(), rows):
                return None
            if type(container) is dict and not set(map(type, container)) <= _VALUES:
                return None
            self._known.add(found)
        return found

    def _written(self, container: Collection[Any]) -> bytes | None:
        digest = _Digest(self._tick)
        pickler = _Plain(digest, protocol=4)  # which has no way of its own for a bytearray
        pickler.fast = True
        try:
            pickler.dump(container)
        except SaveEndsError:
            raise
        except Exception:  # noqa: BLE001 - it holds something else, or goes too deep
            return None
        return digest.digest()


class _Plain(pickle.Pickler):
    """Writes what Python itself is made of, and runs nobody's code."""

    def reducer_override(self, _: Any) -> NoReturn:
        raise pickle.PicklingError


class _Digest(io.RawIOBase):
    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._hash = xxhash.xxh3_128()

    def write(self, content: Any, /) -> int:
        self._tick()
        self._hash.update(content)
        return len(content)

    def digest(self) -> bytes:
        return self._hash.digest()


def _is_flat(kind: type, rows: Collection[Any]) -> bool:
    """Whether the rows hold nothing but values, where the pickler has met nothing but those and containers."""
    if kind is dict and not any(map(gc.is_tracked, rows)):
        return True  # the collector need not look at dicts without containers, but for tuples of values
    parts = chain.from_iterable(rows)
    if kind is not dict:
        return set(map(type, parts)) <= _VALUES
    return set(map(type, chain.from_iterable(map(dict.values, rows)))) <= _VALUES and set(map(type, parts)) <= _VALUES


def words_of(container: Collection[Any]) -> list[str | bytes] | None:
    """Keys and texts that the rows of a flat container share; `None` where those are too many to be told from a sample.

    Texts that are rare among all cannot be told from one that is met once. If of what is met one in a hundred is such a
    text, about as many are shared by rows that were not asked (Good, The population frequencies of species, 1953).
    """
    try:
        parts = _parts_of_some(container)
    except (IndexError, RuntimeError, TypeError):  # another thread is at work on it
        return None
    held = list(map(sys.getrefcount, parts))
    # In the list, and in one place beside it.
    alone = _HELD_ONCE + 1
    shared = {
        id(part): part
        for part, holders in zip(parts, held, strict=True)
        if holders > alone and type(part) in _TEXTS and len(part) > 1  # a single character is one object anyway
    }
    met = Counter(map(id, parts))
    once = sum(met[word] == 1 for word in shared)
    return list(shared.values()) if once * _RARE <= len(parts) else None


def _parts_of_some(container: Collection[Any]) -> list[Any]:
    rows: Any = list(container.values()) if type(container) is dict else container
    asked = random.Random(0).sample(rows, min(_ASKED, len(rows)))  # noqa: S311 - nothing is kept secret by it
    kind = type(asked[0])
    if kind is not dict:
        return list(chain.from_iterable(asked)) if kind in _ROWS else asked
    return [*chain.from_iterable(asked), *chain.from_iterable(map(dict.values, asked))]
