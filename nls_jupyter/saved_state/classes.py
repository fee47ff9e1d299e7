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

from nls_jupyter.between.seams import CLASS_TRACKER, CLASSES_BY_NUMBER, SLOT_NAMES
from nls_jupyter.saved_state import annotated, class_bodies, foreign_types, typing_constructs, unheard
from nls_jupyter.saved_state.class_bodies import is_made_by_python
from nls_jupyter.saved_state.kinds import content_of, line_of
from nls_jupyter.saved_state.looks import importable, is_written_in_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where pickle keeps what it has found out about a class.
_FOUND = "__slotnames__"
_PLAIN = (type, abc.ABCMeta, object)
# What a class is made with even where a library refuses the rest.
_ALWAYS = ("__module__", "__qualname__", "__slots__")


def as_written(kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """What cloudpickle makes of a class, with what it has in its own order, and its slots.

    cloudpickle sorts by name what it gives to an empty class, and leaves out what a base has, too. Here the class is
    made with every name in its place. What its user's own bases and metaclass do when a class is made, they have done:
    that comes back with them, and is not done again.
    """
    make, made_of, (state, slots), *more = reduced
    state.pop(_FOUND, None)
    state.update(annotated.kept_by_class(kind))
    places = {name: place for place, name in enumerate(vars(kind))}
    if typing_constructs.is_typed_dict(kind):
        meta, name, _, body, tracker, *_ = made_of
        make, made_of = typing_constructs.make_typed_dict, (meta, name, kind.__bases__, body, tracker)
    # What stands for other bases than it has (`typing.NamedTuple`) is made in another way.
    elif types.resolve_bases(made_of[2]) == kind.__bases__:
        inherited = {name: value for name, value in vars(kind).items() if _is_inherited(kind, name)}
        state = {name: value for name, value in {**inherited, **state}.items() if not foreign_types.is_field(value)}
        meta, name, bases, body, *rest = made_of
        makers = (*(maker for maker in meta.__mro__ if maker not in _PLAIN), *unheard.told(kind.__bases__))
        read = any(map(_is_a_librarys, makers))  # these may look at what is there
        body = (class_bodies.whole if read else class_bodies.empty)(kind, body, state)
        once = foreign_types.given_once(kind, body)
        state = {name: value for name, value in state.items() if name not in once}
        make, made_of = _make, (make, (meta, name, bases, body, *rest))
    names = sorted(state, key=lambda name: places.get(name, len(places)))
    state = {name: state[name] for name in names if not is_made_by_python(kind, state[name])}
    *items, give = more
    later = class_bodies.leading_to_instances(kind, state)
    methods = {name: value for name, value in state.items() if name in later and _has(value, "__get__")}
    first = _Given(
        _begin, kind, give, *((name, name in later, None if name in later else state[name]) for name in state)
    )
    # What is made meanwhile may have changed what the class had already; a metaclass would hear of it twice.
    left_out = {name: value for name, value in state.items() if name in later and name not in methods}
    last = {**state} if type(kind) in _PLAIN else left_out
    last.pop("__module__", None)  # Python 3.13 drops the line of a class that gets another one
    return make, made_of, (give, first, _Given(give, kind, (methods, {})), (last, slots)), *items, _complete


class _Given:
    """Stands for a part of what a class has: the unpickler calls `give(kind, *parts)` where it comes by."""

    def __init__(self, give: Callable[..., type], kind: type, *parts: Any) -> None:
        self._reduced: tuple[Any, ...] = give, (kind, *parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def _begin(kind: type, give: Callable[..., Any], *parts: tuple[str, bool, Any]) -> type:
    """Give a class the names that it lacks in their order, those whose values come later without a value."""
    for name, comes_later, value in parts:
        if content_of(kind).get(name, give) is value:
            continue
        if not comes_later:
            give(kind, ({name: value}, {}))
        elif name not in content_of(kind) and not _has_data_at(type(kind), name):
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


def _has_data_at(meta: type, name: str) -> bool:
    return any(name in vars(base) and _has(vars(base)[name], "__set__") for base in line_of(meta))


def _is_a_librarys(maker: type) -> bool:
    return importable(maker) or not is_written_in_python(maker)


def _is_inherited(kind: type, name: str) -> bool:
    """Whether what the class itself has under that name is also a base's."""
    bases = (vars(base) for base in kind.__bases__)
    return name != "__module__" and any(name in base and base[name] is vars(kind)[name] for base in bases)


def _make(make: Callable[..., type], made_of: tuple[Any, ...]) -> type:
    """A class with its body, or the one that is made already of the same; called by the unpickler.

    What is in a body may lead to the class by a variable of its methods. A stream then makes it twice.
    """
    _, _, written, body, tracker, *_ = made_of
    known: type | None = CLASSES_BY_NUMBER.here({}).get(tracker)
    if known is not None:
        return known
    bases = types.resolve_bases(written)
    with unheard.by_the_users(bases, body.values()):
        try:
            return _made(make, made_of, bases, body)
        except Exception:  # noqa: BLE001 - a library does not take what it has made of a body for one
            return _made(make, made_of, bases, {name: body[name] for name in _ALWAYS if name in body})


def _made(make: Callable[..., type], made_of: tuple[Any, ...], bases: tuple[Any, ...], body: dict[str, Any]) -> type:
    meta, name, written, _, tracker, *more = made_of
    if meta in _PLAIN or _is_a_librarys(meta):
        return make(meta, name, written, body, tracker, *more)
    maker = next(kind for kind in meta.__mro__ if kind in _PLAIN or _is_a_librarys(kind))
    made = maker.__new__(meta, name, bases, dict(body))
    if maker not in _PLAIN:
        maker.__init__(made, name, bases, dict(body))
    known: type = CLASS_TRACKER.here()(tracker, made)
    return known


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
