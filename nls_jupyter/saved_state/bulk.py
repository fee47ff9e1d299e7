"""Big containers of rows, looked at all at once: a hundred thousand small dicts, or numbers, that nobody shares.

What tells one look from the next is what the rows hold, as the C pickler writes it without a memo, which takes a fifth
of what pickling them takes. That leaves out which of them are the same object. So it is asked of all first whether the
container alone holds them: then each is there once, and nobody else leads to it.
"""

from __future__ import annotations

import gc
import io
import pickle
import sys
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import xxhash

from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# The pickler writes these itself, and they are told apart by what they are.
_VALUES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})
_ROWS: frozenset[type] = frozenset({dict, list, tuple})
# What is told of an object that one list holds.
_HELD_ONCE = sum(map(sys.getrefcount, [object()]))


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
