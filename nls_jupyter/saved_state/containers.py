"""Instances of classes of somebody's that are a dict, a list or a set: what is in them comes back as it is.

pickle puts it in by the class's own methods, which may do something else with it: count, change or drop it, or take the
members for another argument. Here it is read and put in past them.
"""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable


def _put_in_order(made: Any, items: list[Any]) -> None:
    for key, value in items:
        collections.OrderedDict.__setitem__(made, key, value)


_PUT: Final[dict[Any, Callable[[Any, Any], object]]] = {
    collections.OrderedDict: _put_in_order,
    collections.defaultdict: dict.update,
    collections.Counter: dict.update,
    collections.deque: collections.deque.extend,
    dict: dict.update,
    list: lambda made, items: list.__iadd__(made, items),
    set: set.update,
    frozenset: lambda _, __: None,
}
# What they are made with beside their members: the factory, the bound.
_MADE_WITH: Final = (collections.defaultdict, collections.deque)
# Whose members need no hash.
LINES: Final = (list, collections.deque)
_WAYS = ("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")


def base_in(kind: type) -> Any:
    """Which container instances of a class are, if any."""
    return next((base for base in _PUT if issubclass(kind, base)), None)


def base_of(kind: type) -> Any:
    """Which container a class of somebody's is, if it leaves it to pickle how that is saved; else `None`."""
    base = base_in(kind)
    plain = all(getattr(kind, way, None) is getattr(base, way, None) for way in _WAYS)
    return base if plain and kind is not base and not _has_a_compiled_part(kind, base) else None


def _has_a_compiled_part(kind: type, base: Any) -> bool:
    """Whether there is more in it than in the container and its attributes, as in SQLAlchemy's OrderedSet."""
    between = kind.__mro__[: kind.__mro__.index(base)]
    return any(isinstance(vars(each).get("__new__"), types.BuiltinMethodType) for each in between)


def reduce(base: Any, thing: Any) -> Any:
    """As pickle would, but for how its content is read, and put in again."""
    reduced = thing.__reduce_ex__(5)
    state = reduced[2] if len(reduced) > 2 else None
    if state is None and issubclass(base, dict):  # some are pickled without their attributes
        state = object.__getstate__(thing)
    items = members_of(base, thing)
    made_of = items if base is frozenset else None
    beginning = reduced[1] if base in _MADE_WITH else ()
    content = (base, [] if base is frozenset else items, state, beginning)
    return new, (base, type(thing), made_of), content, None, None, fill


def members_of(base: Any, thing: Any) -> list[Any]:
    """What is in it; of a dict, pairs of key and value."""
    return list((base.items if issubclass(base, dict) else base.__iter__)(thing))


def made_with(base: Any, thing: Any) -> tuple[Any, ...]:
    """What `begin` wants: the factory, the bound."""
    args: tuple[Any, ...] = base.__reduce__(thing)[1] if base in _MADE_WITH else ()
    return args


def new(base: Any, kind: type, items: list[Any] | None) -> Any:
    """An empty one, past whatever its class wants to make one; a frozenset gets its members at once."""
    return base.__new__(kind) if items is None else base.__new__(kind, items)


def fill(thing: Any, content: tuple[Any, list[Any], Any, tuple[Any, ...]]) -> None:
    """What is in it, then its attributes, as pickle gives them."""
    base, items, state, beginning = content
    begin(thing, base, beginning)
    put(base, thing, items)
    give(thing, state)


def begin(thing: Any, base: Any, args: tuple[Any, ...]) -> None:
    """Before there is anything in it."""
    if args:
        base.__init__(thing, *args)


def put(base: Any, thing: Any, items: list[Any]) -> None:
    """Members only; it may be done again after it failed half-way, but for a list."""
    _PUT[base](thing, items)


def give(thing: Any, state: Any) -> None:
    """Attributes only."""
    if state is None:
        return
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        vars(thing).update(attributes)
    for name, value in (slots or {}).items():
        setattr(thing, name, value)
