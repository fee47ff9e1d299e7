"""Classes of cells: they come back as they were written, and a save leaves no trace in any class.

What a class has may lead to its own instances: a registry, or what a decorator remembers of each. They are made when
the class is there in part only. So it has first whatever does not lead to them: what tells them apart and finds them
again, and gives them their attributes.
"""

from __future__ import annotations

import abc
import contextlib
import copyreg
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import ABC_CONTENT, CLASS_TRACKER, SLOT_NAMES
from nls_jupyter.saved_state import typing_constructs, unheard
from nls_jupyter.saved_state.kinds import content_of, line_of
from nls_jupyter.saved_state.looks import ATOMS, importable, is_written_in_python
from nls_jupyter.saved_state.tolerant import children_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Where pickle keeps what it has found out about a class.
_FOUND = "__slotnames__"
_PLAIN = (type, abc.ABCMeta, object)
_MADE_LATER = ("__abstractmethods__", ABC_CONTENT.name)
_MOST_LOOKED_AT = 10_000
_MADE_BY_PYTHON = (types.GetSetDescriptorType, types.MemberDescriptorType)


def as_written(kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """What cloudpickle makes of a class, with what it has in its own order, and its slots.

    cloudpickle sorts by name what it gives to an empty class, and leaves out what a base has, too. Here the class is
    made with every name in its place. What its user's own bases and metaclass do when a class is made, they have done:
    that comes back with them, and is not done again.
    """
    make, made_of, (state, slots), *more = reduced
    state.pop(_FOUND, None)
    places = {name: place for place, name in enumerate(vars(kind))}
    if typing_constructs.is_typed_dict(kind):
        meta, name, _, body, tracker, *_ = made_of
        make, made_of = typing_constructs.make_typed_dict, (meta, name, kind.__bases__, body, tracker)
    # What stands for other bases than it has (`typing.NamedTuple`) is made in another way.
    elif types.resolve_bases(made_of[2]) == kind.__bases__:
        state = {**{name: value for name, value in vars(kind).items() if _is_inherited(kind, name)}, **state}
        meta, name, bases, body, *rest = made_of
        makers = (*(maker for maker in meta.__mro__ if maker not in _PLAIN), *unheard.told(kind.__bases__))
        if not any(map(importable, makers)):  # these may look at what is there
            body = _body(kind, body, state)
        make, made_of = _make, (make, (meta, name, bases, body, *rest))
    names = sorted(state, key=lambda name: places.get(name, len(places)))
    state = {name: state[name] for name in names if not _is_made_by_python(kind, state[name])}
    *items, give = more
    later = _leading_to_instances(kind, state)
    methods = {name: value for name, value in state.items() if name in later and _has(value, "__get__")}
    first = _Given(
        _begin, kind, give, *((name, name in later, None if name in later else state[name]) for name in state)
    )
    # What is made meanwhile may have changed what the class had already; a metaclass would hear of it twice.
    left_out = {name: value for name, value in state.items() if name in later and name not in methods}
    last = state if type(kind) in _PLAIN else left_out
    return make, made_of, (give, first, _Given(give, kind, (methods, {})), (last, slots)), *items, _complete


class _Given:
    """Stands for a part of what a class has: the unpickler calls `give(kind, *parts)` where it comes by."""

    def __init__(self, give: Callable[..., type], kind: type, *parts: Any) -> None:
        self._reduced: tuple[Any, ...] = give, (kind, *parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def _begin(kind: type, give: Callable[..., Any], *parts: tuple[str, bool, Any]) -> type:
    """Give an empty class all its names in their order, those whose values come later without a value."""
    for name, comes_later, value in parts:
        if not comes_later:
            give(kind, ({name: value}, {}))
        elif not any(name in vars(base) and _is_data(vars(base)[name]) for base in line_of(type(kind))):
            type.__setattr__(kind, name, None)
    return kind


#: What gives an empty class its names.
BEGINS = _begin


def _complete(kind: type, state: tuple[Any, ...]) -> type:
    """Give a class the rest. Raises TypeError where a part before could not be given."""
    give, *given, rest = state
    if any(part is not kind for part in given):
        raise TypeError("a part of the class could not be made")
    made: type = give(kind, rest)
    return made


def _has(value: Any, name: str) -> bool:
    """Whether its type has it, without asking anybody's code."""
    return any(name in content_of(base) for base in line_of(type(value)))


def _is_data(found: Any) -> bool:
    return _has(found, "__set__")


def _leading_to_instances(kind: type, state: Mapping[str, Any]) -> set[str]:
    """The names of what leads to an instance of a class, past what that class itself has."""
    left, instances = _MOST_LOOKED_AT, dict[type, bool]()
    names: set[str] = set()
    for name, value in state.items():
        todo, seen = [value], {id(kind)}
        while todo:
            node = todo.pop()
            if id(node) in seen or type(node) in ATOMS:
                continue
            seen.add(id(node))
            left -= 1
            known = instances.get(type(node))
            if known is None:
                known = instances[type(node)] = any(base is kind for base in line_of(type(node)))
            if known or left < 0:
                names.add(name)
                break
            todo += children_of(node, without_globals=True)
    return names


def _is_inherited(kind: type, name: str) -> bool:
    """Whether what the class itself has under that name is also a base's."""
    bases = (vars(base) for base in kind.__bases__)
    return name != "__module__" and any(name in base and base[name] is vars(kind)[name] for base in bases)


def _make(make: Callable[..., type], made_of: tuple[Any, ...]) -> type:
    """An empty class; called by the unpickler."""
    meta, name, written, body, tracker, *_ = made_of
    bases = types.resolve_bases(written)
    with unheard.by_the_users(bases):
        if meta in _PLAIN or importable(meta) or not is_written_in_python(meta):
            return make(*made_of)
        maker = next(kind for kind in meta.__mro__ if kind in _PLAIN or importable(kind))
        made: type = CLASS_TRACKER.here()(tracker, maker.__new__(meta, name, bases, dict(body)))
        return made


def _body(kind: type, known: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """What a class is made with before its values are there: its slots, and `None` for all others."""
    body: dict[str, Any] = {}
    for name, value in vars(kind).items():
        if _is_made_by_python(kind, value) or name in _MADE_LATER:
            break  # what follows has been set later
        if name in known:
            body[name] = known[name]
        elif name == "__slots__":
            body[name] = tuple(slot for slot, made in vars(kind).items() if _is_made_by_python(kind, made))
        elif name in state:
            body[name] = None
    return {**body, **known}


def _is_made_by_python(kind: type, value: Any) -> bool:
    """Whether it stands for a slot, for the attributes, or for the weak references of an instance."""
    return isinstance(value, _MADE_BY_PYTHON) and value.__objclass__ is kind


@contextlib.contextmanager
def without_a_trace() -> Iterator[None]:
    """What pickle finds out about classes meanwhile does not stay in them, where their users would see it."""
    find = SLOT_NAMES.of(copyreg, None)
    if find is None:
        yield
        return
    found: list[type] = []

    def find_once(kind: type) -> Any:
        found.append(kind)
        return find(kind)

    SLOT_NAMES.put(copyreg, find_once)
    try:
        yield
    finally:
        SLOT_NAMES.put(copyreg, find)
        for kind in found:
            if _FOUND in vars(kind):
                _forget(kind)


def _forget(kind: type) -> None:
    try:
        type.__delattr__(kind, _FOUND)
    except TypeError:  # a metaclass written in C, as pybind11's, has it done by itself only
        with contextlib.suppress(Exception):
            delattr(kind, _FOUND)
