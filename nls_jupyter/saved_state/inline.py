"""Attributes of instances, without a dict being made for each of them.

CPython keeps the attributes of an instance beside it, and makes a dict of them only for whoever asks for `__dict__`, as
pickle does; then the dict stays, and the instance takes about twice its memory. The garbage collector tells the values
in their order; what it tells is compared, one by one, with the values under the names that other instances have.

From Python 3.13 on it tells the values also where there is a dict of them, which somebody may hold. Whether there is
one is read where CPython has it, before the instance.
"""

from __future__ import annotations

import copyreg
import ctypes
import enum
import gc
import inspect
import operator
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from nls_jupyter.saved_state.looks import slots_of

if TYPE_CHECKING:
    from collections.abc import Callable

_NONE = object()
_MOST_ATTRIBUTES = 30  # CPython keeps no more than these without a dict
# Flags of a class whose instances have their values beside them, and a place for a dict.
_BESIDE = 1 << 2 | 1 << 4
_PLACE_BYTES = -3 * ctypes.sizeof(ctypes.c_void_p)


class _Layout(NamedTuple):
    """The names of some instances' attributes, what gets them, and what their class has under these names."""

    names: tuple[str, ...]
    get: Callable[[Any], Any]
    defaults: tuple[tuple[int, Any], ...]


class Layouts:
    """The names of the attributes that instances of one class have, by how many there are."""

    def __init__(self) -> None:
        self._known: dict[int, _Layout | None] = {}

    def of(self, thing: Any) -> tuple[tuple[str, ...], tuple[Any, ...]] | None:
        """Names and values, or `None` where there is a dict, or one has to be asked for."""
        *values, kind = gc.get_referents(thing) or (None,)
        if kind is not type(thing) or (_DICTS_HIDE and _hidden_dict(thing) is not None):
            return None
        if not values:
            return (), ()
        if len(values) not in self._known:
            self._known[len(values)] = _learn(thing, kind, len(values))
            return self.of(thing)  # as the next save finds it, for which it may have a dict now
        layout = self._known[len(values)]
        if layout is None:
            return None
        try:
            found = layout.get(thing)
        except AttributeError:
            return None
        found = found if len(values) > 1 else (found,)
        if not all(map(operator.is_, found, values)) or any(found[at] is value for at, value in layout.defaults):
            return None
        return layout.names, found

    def forget_changed(self, kind: type) -> None:
        """The class may have got other values under the names of attributes since."""
        for count, layout in list(self._known.items()):
            if layout is not None:
                now = [(at, id(value)) for at, value in _defaults(kind, layout.names)]
                if now != [(at, id(value)) for at, value in layout.defaults]:
                    del self._known[count]


def _hidden_dict(thing: Any) -> int | None:
    """The address of the dict of an instance whose class has `_BESIDE`; `None`: there is none."""
    return ctypes.c_void_p.from_address(id(thing) + _PLACE_BYTES).value


def _are_found() -> bool:
    """Whether this Python has hidden dicts where they are looked for."""

    class Sample:
        def __init__(self) -> None:
            self.value = 1

    sample = Sample()
    if Sample.__flags__ & _BESIDE != _BESIDE or _hidden_dict(sample) is not None:
        return False
    attributes = vars(sample)
    return _hidden_dict(sample) == id(attributes)


_DICTS_HIDE = sys.version_info >= (3, 13)
_CAN_BE_TOLD = not _DICTS_HIDE or _are_found()


def _defaults(kind: type, names: tuple[str, ...]) -> tuple[tuple[int, Any], ...]:
    """What the class has under these names, by their place."""
    found = ((at, inspect.getattr_static(kind, name, _NONE)) for at, name in enumerate(names))
    return tuple((at, value) for at, value in found if value is not _NONE)


def _learn(thing: Any, kind: type, count: int) -> _Layout | None:
    """The layout of this instance, unless it can only be asked for."""
    names = tuple(vars(thing))
    if len(names) != count or count > _MOST_ATTRIBUTES:
        return None
    if not all(isinstance(name, str) and "." not in name for name in names):
        return None
    # What only the class has under a name must not be taken for the instance's own.
    own = _defaults(kind, names)
    if any(hasattr(type(value), "__set__") or hasattr(type(value), "__get__") for _, value in own):
        return None
    return _Layout(names, operator.attrgetter(*names), own)


_layouts: weakref.WeakKeyDictionary[type, Layouts] = weakref.WeakKeyDictionary()


def layouts_of(kind: type) -> Layouts | None:
    """How to look at instances of a class; `None` for those that do more about attributes than to have them."""
    plain = not issubclass(kind, enum.Enum) and slots_of(kind) == () and kind.__dictoffset__ != 0
    if not _CAN_BE_TOLD or (_DICTS_HIDE and kind.__flags__ & _BESIDE != _BESIDE):
        return None
    if not plain or hasattr(kind, "__getattr__") or hasattr(kind, "__setstate__"):
        return None
    layouts = _layouts.setdefault(kind, Layouts())
    layouts.forget_changed(kind)
    return layouts


def reduce(thing: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """As `object.__reduce_ex__` does it; no dict is made when it comes back, either."""
    return copyreg.__newobj__, (type(thing),), (names, *values), None, None, fill  # type: ignore[attr-defined]


def fill(thing: Any, state: tuple[Any, ...]) -> None:
    """Give an instance its attributes, past whatever its class does about setting them."""
    for name, value in zip(state[0], state[1:], strict=True):
        object.__setattr__(thing, name, value)
