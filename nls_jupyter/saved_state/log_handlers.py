"""Handlers of logs, as objects: whoever holds one, and each logger that has it, have the same one again.

One that comes back is known to `logging` as any new one is, which flushes it at the end and finds it by its name. Its
lock is a new one. A file that it writes is opened again, to go on at its end.
"""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from nls_jupyter.saved_state import containers
from nls_jupyter.saved_state.kinds import owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What fails to come back is made once more with each try.
_FOUND: Final[WeakValueDictionary[str, logging.Handler]] = WeakValueDictionary()
_LOCK: Final = "lock"
_STREAM: Final = "stream"
_WAYS: Final = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__", "__setstate__")


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Base classes and the reducers of all their instances."""
    yield logging.Handler, _reduce


def _reduce(handler: logging.Handler) -> Any:
    if any(owner_of(type(handler), way) is not owner_of(object, way) for way in _WAYS):
        return NotImplemented
    state: Any = object.__getstate__(handler)
    attributes, slots = state if type(state) is tuple else (state, None)
    opened = isinstance(handler, logging.FileHandler) and _writes_its_file(handler)
    left_out = {_LOCK, _STREAM} if opened else {_LOCK}
    kept = {name: value for name, value in attributes.items() if name not in left_out}
    return make, (type(handler),), ((kept, slots), opened), None, None, fill


def _writes_its_file(handler: logging.FileHandler) -> bool:
    """Whether its file is open, and is what `open` makes of its path, not what unpacks it or the like."""
    stream: Any = handler.stream  # none yet where it was told to wait
    if type(stream) is not io.TextIOWrapper or stream.closed or type(stream.buffer) is not io.BufferedWriter:
        return False
    return type(stream.buffer.raw) is io.FileIO and bool(stream.name == handler.baseFilename)


def make(kind: Any) -> logging.Handler:
    """One without anything; called by the unpickler."""
    made: logging.Handler = object.__new__(kind)
    logging.Handler.__init__(made)
    return made


def fill(handler: Any, content: tuple[Any, bool]) -> None:
    """Give a handler what it had; called by the unpickler. Raises OSError where its file cannot be written."""
    state, opened = content
    containers.give(handler, state)
    if opened:
        path, encoding, errors = handler.baseFilename, handler.encoding, handler.errors
        vars(handler)[_STREAM] = open(path, "a", encoding=encoding, errors=errors)  # noqa: PTH123, SIM115 - as it does
    register(handler)


def register(handler: logging.Handler) -> None:
    """Have `logging` find it by its name, if it has one that no other has which is back and goes by it still."""
    name = handler.get_name()
    if not name:
        return
    known = _FOUND.get(name)
    if known is None or known.get_name() != name:
        handler.set_name(name)
        _FOUND[name] = handler
