"""Instances of classes with a `__new__` or `__init__` of somebody's: what these did is done, they are not called again.

pickle calls them with what Python's own type below them is made of: a text, a number, or nothing at all. They may want
something else, or do something else with it. So an instance is made by that type itself. What such a type leaves
out when it is pickled, as dates and numbers leave out the attributes that a class has added, comes back, too.
"""

from __future__ import annotations

import collections
import copyreg
import datetime
import decimal
import fractions
import inspect
import pathlib
import random
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state import containers
from nls_jupyter.saved_state.kinds import content_of, line_of, maker_of, module_of, owner_of
from nls_jupyter.saved_state.looks import importable
from nls_jupyter.saved_state.origins import is_the_users_module

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN: Final = (float, int, str, bytes, complex, tuple, bytearray, types.SimpleNamespace, datetime.tzinfo)
# Pickled without the attributes that a class of somebody's has added.
_WITHOUT_ATTRIBUTES: Final = (
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, decimal.Decimal, fractions.Fraction),
    *(pathlib.PurePath, pathlib.PurePosixPath, pathlib.Path, pathlib.PosixPath, random.Random),
)
_BUILT_ON: Final[frozenset[type]] = frozenset({*_PLAIN, *_WITHOUT_ATTRIBUTES, object})
# Their content comes with `__init__`.
_INITIALIZED: Final = (bytearray, pathlib.PurePath)
_WAYS: Final = ("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__getinitargs__")
_ARGS_OF_NAMED: Any = content_of(collections.namedtuple("_ARGS_OF_NAMED", ""))["__getnewargs__"]


def base_of(kind: type) -> type | None:
    """By which type instances of a class are to be made, if not by the class; a class with a way of its own is not."""
    base = built_on(kind)
    if base is kind or kind in copyreg.dispatch_table or not all(_is_left_to(base, kind, way) for way in _WAYS):
        return None
    if maker_of(kind) is not maker_of(base):
        return None
    if base is object:
        return base if _wants_more(kind) else None
    adds = any(owner_of(kind, name) is not owner_of(base, name) for name in ("__new__", "__init__"))
    return base if _loses_attributes(base) or (adds and not _may_hand_out(base, kind)) else None


def built_on(kind: type) -> type:
    """The type of Python's or NumPy's that gives instances of a class their content; `object` where none does."""
    return next(base for base in line_of(kind) if base in _BUILT_ON or _is_numpys_number(base))


def _is_numpys_number(kind: type) -> bool:
    """Whether it is one of NumPy's types, which pickles an instance of a class of somebody's as one of its own."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.number) and kind in numpy.sctypeDict.values()


def _loses_attributes(base: type) -> bool:
    return base in _WITHOUT_ATTRIBUTES or _is_numpys_number(base)


def _is_left_to(base: type, kind: type, way: str) -> bool:
    owner = owner_of(kind, way)
    if owner is owner_of(base, way):
        return True
    found = content_of(owner)[way] if owner is not None else None
    return base is tuple and getattr(found, "__code__", None) == _ARGS_OF_NAMED.__code__


def _wants_more(kind: type) -> bool:
    """Whether a class of cells, or one that cannot be called without arguments, makes its instances itself.

    One of a library's may hand out what that has already.
    """
    owner, function = _own_new(kind)
    return function is not None and not (importable(owner) and _takes(function, 0))


def _may_hand_out(base: type, kind: type) -> bool:
    """Whether it is a library's class that can be called with what it is pickled with."""
    owner, function = _own_new(kind)
    if function is None or not importable(owner) or is_the_users_module(module_of(owner)):
        return False
    named = owner_of(kind, "__getnewargs__") is not owner_of(base, "__getnewargs__")
    return _takes(function, len(kind.__match_args__) if named else 2 if base is complex else 1)  # type: ignore[attr-defined]


def _own_new(kind: type) -> tuple[Any, types.FunctionType | None]:
    """Who has written the `__new__` of a class in Python, and that, if somebody has."""
    owner = owner_of(kind, "__new__")
    function = getattr(content_of(owner)["__new__"], "__func__", None) if owner is not None else None
    return owner, function if type(function) is types.FunctionType else None


def _takes(function: types.FunctionType, count: int) -> bool:
    """Whether a `__new__` can be called with a class and so many arguments."""
    code, defaults, options = function.__code__, function.__defaults__ or (), function.__kwdefaults__ or {}
    most = sys.maxsize if code.co_flags & inspect.CO_VARARGS else code.co_argcount
    return code.co_argcount - len(defaults) <= count + 1 <= most and code.co_kwonlyargcount <= len(options)


def reduce(base: Any, handler: Callable[[Any], Any] | None, thing: Any) -> Any:
    """As `handler` or pickle would, but for who makes it."""
    reduced = NotImplemented if handler is None else handler(thing)
    if reduced is NotImplemented:
        reduced = thing.__reduce_ex__(5)
    if type(reduced) is not tuple:
        return reduced
    make, args, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
    kind = type(thing)
    if make is copyreg.__newobj__:  # type: ignore[attr-defined]
        args = base.__getnewargs__(thing) if hasattr(base, "__getnewargs__") else args[1:]
    elif _is_numpys_number(base):
        args = (make(*args),)
    elif make is not kind:
        return reduced
    if type(state) is dict:
        state = dict(state)  # its own would look as if somebody held it
    made_of = base, kind, *args
    if _loses_attributes(base):
        return new, made_of, (state, added(base, thing)), items, pairs, fill
    return new, made_of, state, items, pairs, setter


def added(base: type, thing: Any) -> Any:
    """The attributes that pickle leaves out: those by name, if any, and those in slots."""
    state = object.__getstate__(thing)
    attributes, slots = state if type(state) is tuple else (state, {})
    line = line_of(base)
    return attributes, {name: value for name, value in slots.items() if owner_of(type(thing), name) not in line}


def new(base: Any, kind: type, *args: Any) -> Any:
    """An instance without its attributes; called by the unpickler."""
    made = base.__new__(kind, *args)
    if issubclass(base, _INITIALIZED) and base.__init__ is not object.__init__:  # paths have one since Python 3.12
        base.__init__(made, *args)
    return made


def is_disguised(kind: type) -> bool:
    """Whether its instances may say that they are of another class, as mocks do; pickle takes that for a mistake."""
    return owner_of(kind, "__class__") is not object and not issubclass(kind, type)


def reduce_disguised(thing: Any) -> Any:
    """One that is made by its own class, whatever it says."""
    reduced = thing.__reduce_ex__(5)
    if type(reduced) is tuple and reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
        kind, *args = reduced[1]
        return new, (kind, kind, *args), *reduced[2:]
    return reduced


def fill(thing: Any, content: tuple[Any, Any]) -> None:
    """What pickle gives such an instance, then what it leaves out; called by the unpickler."""
    state, (attributes, slots) = content
    containers.give(thing, state)
    if attributes:
        vars(thing).update(attributes)
    for name, value in slots.items():
        object.__setattr__(thing, name, value)
