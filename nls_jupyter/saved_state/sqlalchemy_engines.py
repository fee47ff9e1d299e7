"""SQLAlchemy's engines, without their connections, and with what listens to events.

Connections end with their process, and are opened again when they are asked for. A database in memory has a pool of
another kind, and is named. SQLAlchemy itself pickles what has events without those who listen to them, such as its own
that ask the database for its version at the first connection.
"""

from __future__ import annotations

import copy
import copyreg
import importlib
import logging
import sys
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state.places import Place, is_librarys_code, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

    # By the name of an event who listens, in order, those of them to whom a copy's events are told, too, and whether
    # they wait for each other by a lock of asyncio's: another one would block its loop.
    _Listening = Mapping[str, tuple[list[Any], list[Any], Any]]


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Pools whose connections can be opened again, what is compiled, and who listens, if SQLAlchemy is imported."""
    if (found := sys.modules.get("sqlalchemy.pool")) is not None:
        yield found.QueuePool, _reduce_pool
    if (found := sys.modules.get("sqlalchemy.util")) is not None:
        yield found.LRUCache, _reduce_compiled
    if (found := seams.SQLALCHEMY_EVENTS.here(None)) is not None:
        yield found, _reduce_events


def _reduce_pool(pool: Any) -> Any:
    asked = copy.copy(pool)
    asked.logger = logging.Logger("nobody's", logging.CRITICAL)  # each save would be told to who reads SQLAlchemy's
    return copyreg.__newobj__, (type(pool),), vars(asked.recreate())  # type: ignore[attr-defined]


def _reduce_compiled(cache: Any) -> Any:
    """Empty: what SQLAlchemy has compiled finds no column by itself once it was pickled, and is compiled again."""
    return type(cache), (cache.capacity, cache.threshold, cache.size_alert)


def _reduce_events(events: Any) -> Any:
    made, args = events.__reduce__()
    if None in args:
        return made, args  # of a class: there is one
    names = [each.name for each in seams.SQLALCHEMY_EVENT_NAMES.of(_own(events))]
    found = {name: _own(getattr(events, name)) for name in names}
    listening = {
        name: (list(each.listeners), list(each.propagate), seams.SQLALCHEMY_WITHIN_LOOP.of(each, None))
        for name, each in found.items()
        if each.listeners
    }
    return made, args, listening, None, None, listen


def listen(events: Any, listening: _Listening) -> None:
    """Have these listen; called by the unpickler."""
    for name, (listeners, of_copies, within_loop) in listening.items():
        there = _own(getattr(events, name).for_modify(events))
        there.listeners.extend(listeners)
        there.propagate.update(of_copies)
        if within_loop:
            seams.SQLALCHEMY_WITHIN_LOOP.put(there, value=True)


def _own(joined: Any) -> Any:
    """Without those of the engine that `engine.execution_options` was asked for another one."""
    return getattr(joined, "local", joined)


def place() -> Place:
    """Who listens to all of a class: `@event.listens_for(Engine, "connect")`."""
    return Place("SQLAlchemy event", _of_classes, _listen_to_class, _label, _comes_by_itself)


def _of_classes() -> Iterator[tuple[Hashable, Entry]]:
    for name, kinds in list(seams.SQLALCHEMY_KINDS_OF_EVENTS.here({}).items()):
        for kind in kinds:
            listeners = seams.SQLALCHEMY_LISTENERS.of(getattr(kind.dispatch, name))
            for target, functions in list(listeners.items()):
                # A subclass has those of its bases, too.
                above = [each for base in target.__mro__[1:] for each in listeners.get(base, ())]
                for function in functions:
                    if function not in above:
                        yield (name, target, id(function)), (name, target, function)


def _listen_to_class(name: str, target: Any, function: Any) -> None:
    """As SQLAlchemy has wrapped the function: what is meant for cells would wrap it once more."""
    importlib.import_module("sqlalchemy")
    if seams.SQLALCHEMY_LISTENED_TO.of(target, None) is not None:
        seams.SQLALCHEMY_LISTENED_TO.put(target, value=True)
    seams.SQLALCHEMY_KEY.here()(target, name, _within(function)[-1], target, function).base_listen()


def _label(_: Any, parts: Entry) -> str:
    name, target, function = parts
    return f"{name} of {target.__name__}: {name_of(_within(function)[-1])}"


def _comes_by_itself(function: Any) -> bool:
    return all(is_librarys_code(each) or _is_sqlalchemys(each) for each in _within(function))


def _is_sqlalchemys(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "sqlalchemy"


def _within(function: Any) -> list[Any]:
    """A function, and those that it is wrapped around."""
    found = [function]
    for each in found:
        held = [cell.cell_contents for cell in getattr(each, "__closure__", None) or ()]
        found += [one for one in held if isinstance(one, types.FunctionType) and one not in found]
    return found
