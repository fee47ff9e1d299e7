"""Classes of cells: they come back as they were written, and a save leaves no trace in any class.

What a class has may lead to its own instances: a registry, or what a decorator remembers of each. They are made when
the class is there in part only. So it has its methods first: what tells them apart and finds them again, and gives
them their attributes.
"""

from __future__ import annotations

import abc
import contextlib
import copyreg
import enum
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import ABC_CONTENT, CLASS_TRACKER, SLOT_NAMES
from nls_jupyter.saved_state.kinds import is_of
from nls_jupyter.saved_state.looks import ATOMS, importable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Where pickle keeps what it has found out about a class.
_FOUND = "__slotnames__"
_HEARD = "__init_subclass__"
_PLAIN = (type, abc.ABCMeta, object)
_MADE_LATER = ("__abstractmethods__", ABC_CONTENT.name)
# What `typing` asks a generic class when another one is made of it.
_OF_GENERICS = ("__parameters__", "__orig_bases__")
_MADE_BY_PYTHON = (types.GetSetDescriptorType, types.MemberDescriptorType)


def as_written(kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """What cloudpickle makes of a class, with what it has in its own order, and its slots.

    cloudpickle sorts by name what it gives to an empty class, and leaves out what a base has, too. Here the class is
    made with every name in its place. What its user's own bases and metaclass do when a class is made, they have done:
    that comes back with them, and is not done again.
    """
    make, made_of, (state, slots), *more = reduced
    places = {name: place for place, name in enumerate(vars(kind))}
    # Enumerations are made in another way, and so is what stands for other bases than it has (`typing.NamedTuple`).
    if not issubclass(kind, enum.Enum) and types.resolve_bases(made_of[2]) == kind.__bases__:
        state = {**{name: value for name, value in vars(kind).items() if _is_inherited(kind, name)}, **state}
        meta, name, bases, body, *rest = made_of
        makers = (*(maker for maker in meta.__mro__ if maker not in _PLAIN), *_told(kind.__bases__))
        if not any(map(importable, makers)):  # these may look at what is there
            body = _body(kind, body, state)
        make, made_of = _make, (make, (meta, name, bases, body, *rest))
    names = sorted(state, key=lambda name: places.get(name, len(places)))
    state = {name: state[name] for name in names if name != _FOUND and not _is_made_by_python(kind, state[name])}
    if issubclass(kind, enum.Enum):
        return make, made_of, (state, slots), *more
    *items, give = more
    first = {name: value for name, value in state.items() if _comes_first(name, value)}
    then = {name: value for name, value in state.items() if name not in first and hasattr(value, "__get__")}
    last = {name: value for name, value in state.items() if name not in first and name not in then}
    if type(kind) in _PLAIN:
        first = {
            name: first.get(name) for name in state if name in first or name not in vars(type)
        }  # each in its place
    return make, made_of, (give, _Given(give, kind, first), _Given(give, kind, then), (last, slots)), *items, _complete


class _Given:
    """Stands for a part of what a class has: it is given to the class where the unpickler comes by."""

    def __init__(self, give: Callable[..., Any], kind: type, part: dict[str, Any]) -> None:
        self._reduced: tuple[Any, ...] = give, (kind, (part, {}))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def _complete(kind: type, state: tuple[Any, ...]) -> type:
    """Give a class what it has besides; called by the unpickler."""
    give, *_, rest = state
    made: type = give(kind, rest)
    return made


def _comes_first(name: str, value: Any) -> bool:
    """Whether it leads to no instance, or is one of Python's own methods: these are what others are made by."""
    if is_of(value, types.FunctionType):
        own = name.startswith("__") and name.endswith("__")
        return own or not (value.__closure__ or value.__dict__ or _parts(value.__defaults__, value.__kwdefaults__))
    return type(value) in ATOMS or name in _OF_GENERICS


def _parts(defaults: tuple[Any, ...] | None, by_name: Mapping[str, Any] | None) -> list[Any]:
    """Defaults that are not plain values."""
    return [one for one in (*(defaults or ()), *(by_name or {}).values()) if type(one) not in ATOMS]


def _is_inherited(kind: type, name: str) -> bool:
    """Whether what the class itself has under that name is also a base's."""
    bases = (vars(base) for base in kind.__bases__)
    return name != "__module__" and any(name in base and base[name] is vars(kind)[name] for base in bases)


def _told(bases: Iterable[type]) -> list[type]:
    """Those above a class of these bases that may be told when one is made, but for Python's own."""
    return [kind for base in bases for kind in base.__mro__ if kind is not object and _HEARD in vars(kind)]


def _make(make: Callable[..., type], made_of: tuple[Any, ...]) -> type:
    """An empty class; called by the unpickler."""
    meta, name, written, body, tracker, *_ = made_of
    bases = types.resolve_bases(written)
    kept = [(kind, vars(kind)[_HEARD]) for kind in _told(bases) if not importable(kind)]
    try:
        for kind, _ in kept:
            setattr(kind, _HEARD, classmethod(_unheard))
        if meta in _PLAIN or importable(meta):
            return make(*made_of)
        maker = next(kind for kind in meta.__mro__ if kind in _PLAIN or importable(kind))
        made: type = CLASS_TRACKER.here()(tracker, maker.__new__(meta, name, bases, dict(body)))
        return made
    finally:
        for kind, own in kept:
            setattr(kind, _HEARD, own)


def _unheard(_: type, /, **__: Any) -> None:
    """Nobody is told that there is one more class."""


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
                type.__delattr__(kind, _FOUND)
