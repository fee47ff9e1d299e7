"""What a walk sees of one object: what it consists of, and what tells whether it has changed.

A type that nothing here knows is opaque: its objects are pickled again at each save, and the result is compared.
"""

from __future__ import annotations

import array
import collections
import contextlib
import copyreg
import datetime
import decimal
import enum
import fractions
import functools
import importlib
import logging
import operator
import pathlib
import re
import sys
import types
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from nls_jupyter.between.seams import TORCH_FUNCTION_FROM
from nls_jupyter.saved_state import annotated
from nls_jupyter.saved_state.buffers import owner_behind, span_of
from nls_jupyter.saved_state.kinds import content_of, is_of, name_of
from nls_jupyter.saved_state.slots import hides_any

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_jupyter.saved_state.store import Source


class Memory(NamedTuple):
    """Memory that an object shows a part of.

    Attributes:
        space: which addresses these are: `host`, or a library's name for a device.
        start: first address.
        size_bytes: length.
        key: as in `Regions`.
        source: makes what copies it.
    """

    space: str
    start: int
    size_bytes: int
    key: object
    source: Callable[[], Source]


class Look(NamedTuple):
    """What was seen.

    Attributes:
        token: changes when the object does, apart from what its children and its memory hold.
        children: objects that it leads to, in a fixed order.
        memory: memory that it shows.
        is_opaque: whether only its pickle tells if it has changed.
    """

    token: bytes = b""
    children: tuple[Any, ...] = ()
    memory: Memory | None = None
    is_opaque: bool = False


@dataclass(slots=True)
class OwnGlobals:
    """A dict that functions have as their globals, and that is no module's.

    Attributes:
        content: the dict itself.
        functions: how many of these functions were met.
        is_held: whether anybody else holds it.
    """

    content: dict[str, Any]
    functions: int = 0
    is_held: bool = True


def ATOM(_: Any) -> None:  # noqa: N802 - a constant in a table of functions
    """In a library's table: objects of this type are immutable, and told apart by identity."""


#: Immutable, and told apart by identity while they are alive.
ATOMS: frozenset[type] = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented)),
        *(types.CodeType, types.ModuleType),
        *(datetime.date, datetime.timedelta, decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern),
        *(pathlib.PosixPath, pathlib.PurePosixPath),
    }
)
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8


def is_atom(thing: Any) -> bool:
    """Whether it is of one of these: told by identity, as a metaclass may hash in a way of its own."""
    return any(map(functools.partial(operator.is_, type(thing)), ATOMS))


_UNSET = "nls_jupyter: this slot is not set"


def _cell(cell: types.CellType) -> Look:
    try:
        return Look(children=(cell.cell_contents,))
    except ValueError:
        return Look(b"unbound")


def _partial(part: functools.partial[Any]) -> Look:
    return Look(children=(part.func, part.args, part.keywords, *attributes_of(part)))


def _wrapped(method: staticmethod[..., Any] | classmethod[Any, ..., Any]) -> Look:
    return Look(children=(method.__func__, *attributes_of(method)))


def _moment(moment: datetime.datetime | datetime.time) -> Look:
    """Who subtracts two moments asks whether they have the same zone, by identity."""
    plain = moment.replace(tzinfo=None)
    return Look(f"{plain!r} {moment.fold}".encode(), (moment.tzinfo,))


def _ordered(found: collections.OrderedDict[Any, Any]) -> Look:
    return Look(children=(*found, *found.values(), *attributes_of(found)))


def _bound(method: Any) -> Look:
    return Look(method.__name__.encode(), (method.__self__,))  # the name is made anew each time


def _of_class(descriptor: Any) -> Look:
    return Look(descriptor.__name__.encode(), (descriptor.__objclass__,))


def attributes_of(thing: Any) -> tuple[dict[str, Any], ...]:
    """An object's own attributes, unless it has none; where there are none, no dict is made for them."""
    state = object.__getstate__(thing)
    return (vars(thing),) if state is not None else ()


def _look_at_buffer(content: Any, kind: bytes) -> Look:
    """The content is in the pickle; the memory is told because arrays and tensors may show it."""
    start, size_bytes = span_of(content)
    memory = Memory("host", start, size_bytes, ("buffer", start, size_bytes), _never) if size_bytes else None
    return Look(kind + xxhash.xxh3_128_digest(content), (), memory)


def _never() -> Source:
    raise AssertionError("a buffer is saved in the pickle, not as a region")


def _look_at_view(view: memoryview) -> Look | None:
    if (owner := owner_behind(view)) is None:
        return None
    place = (view.format, view.shape, view.strides, view.readonly, view.nbytes)
    return Look(repr(place).encode() + xxhash.xxh3_128_digest(view.tobytes()), (owner,))


#: What classes written in C, or with slots, have for each of their attributes and methods.
DESCRIPTORS: tuple[type, ...] = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)

LOOKERS: dict[type, Callable[[Any], Look | None]] = {
    types.CellType: _cell,
    types.MethodType: lambda method: Look(children=(method.__func__, method.__self__)),
    property: lambda found: Look(children=(found.fget, found.fset, found.fdel, found.__doc__)),
    types.BuiltinFunctionType: _bound,
    types.MethodWrapperType: _bound,
    **dict.fromkeys(DESCRIPTORS, _of_class),
    staticmethod: _wrapped,
    classmethod: _wrapped,
    slice: lambda found: Look(children=(found.start, found.stop, found.step)),
    functools.partial: _partial,
    collections.deque: lambda queue: Look(str(queue.maxlen).encode(), tuple(queue)),
    collections.OrderedDict: _ordered,
    **dict.fromkeys((datetime.datetime, datetime.time), _moment),
    collections.defaultdict: lambda found: Look(children=(found.default_factory, *found, *found.values())),
    bytearray: lambda content: _look_at_buffer(content, b""),
    array.array: lambda content: _look_at_buffer(content, content.typecode.encode()),
    memoryview: lambda view: _look_at_view(view),
}


def look_at_function(namespaces: set[int], met: dict[int, OwnGlobals], function: types.FunctionType) -> Look | None:
    """A function that is saved by value; `met` gets its globals where these are no module's, by their identity."""
    if (original := vars(function).get(TORCH_FUNCTION_FROM.name)) is not None:
        return Look(b"compiled", (original,))
    own: tuple[Any, ...] = ()
    if id(function.__globals__) not in namespaces and home_of(function) is None:
        if (found := own_globals(function)) is None:
            return None
        met.setdefault(id(found), OwnGlobals(found)).functions += 1
        own = found, builtins_of(function)
    names = (function.__name__, function.__qualname__, function.__module__, function.__doc__)
    parts = (function.__code__, function.__defaults__, function.__kwdefaults__, vars(function), function.__closure__)
    variables = getattr(function, "__type_params__", ())  # since Python 3.12
    return Look(children=(*names, *parts, *annotated.kept_by(function), *variables, *own))


def look_at_class(kind: type) -> Look:
    """A class that is saved by value."""
    # `__slotnames__` is what pickling the first instance leaves there.
    not_content = {"__dict__", "__weakref__", "__slotnames__"}
    content = {key: value for key, value in vars(kind).items() if key not in not_content}
    return Look(children=(kind.__name__, name_of(kind), type(kind), *kind.__bases__, *content, *content.values()))


def look_at_instance(
    slots: tuple[str, ...],
    inline: Callable[[Any], tuple[tuple[str, ...], tuple[Any, ...]] | None],
    thing: Any,
) -> Look:
    """An instance of a class written in Python; `inline` gives its attributes where it has no dict of them."""
    if (found := inline(thing)) is not None:
        return Look("\0".join(found[0]).encode("utf-8", "surrogatepass"), (type(thing), *found[1]))
    values = tuple(getattr(thing, slot, _UNSET) for slot in slots)
    return Look(children=(type(thing), *values, *((vars(thing),) if hasattr(thing, "__dict__") else ())))


def slots_of(kind: type) -> tuple[str, ...] | None:
    """The slots of a class whose instances consist of attributes only; `None` where pickle may see more."""
    own_ways = (
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__getattribute__",
    )
    if not issubclass(kind, enum.Enum):
        if any(getattr(kind, way, None) is not getattr(object, way, None) for way in own_ways):
            return None
        if kind in copyreg.dispatch_table:
            return None
    if hides_any(kind):
        return None
    slots: list[str] = []
    for base in kind.__mro__[:-1]:
        if not is_written_in_python(base):
            return None
        own = vars(base).get("__slots__", ())
        names = (own,) if isinstance(own, str) else tuple(own)
        mangle = f"_{base.__name__.lstrip('_')}"
        slots += [
            mangle + name if name.startswith("__") and not name.endswith("__") else name
            for name in names
            if name not in {"__dict__", "__weakref__"}
        ]
    return tuple(slots) if kind.__basicsize__ <= object.__basicsize__ + 8 * (len(slots) + 2) else None


def is_written_in_python(kind: type) -> bool:
    """Whether it is probably made by a class statement, of an ordinary metaclass."""
    flags = kind.__flags__
    return (
        bool(flags & _HEAP_TYPE)
        and not flags & _IMMUTABLE_TYPE
        and type(kind).__module__
        in {
            "builtins",
            "abc",
            "enum",
            "typing",
        }
    )


def home_of(function: types.FunctionType) -> str | None:
    """The module whose globals a function has, if a new process can import it; `None` for functions of cells."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or vars(module) is not function.__globals__ or name == "__main__":
        return None
    return name if getattr(getattr(module, "__spec__", None), "origin", None) is not None else None


def own_globals(function: types.FunctionType) -> dict[str, Any] | None:
    """The globals of a function that `exec` or the like has made in a dict; `None` where they are a module's."""
    found, name = function.__globals__, function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return found if type(found) is dict and getattr(module, "__dict__", None) is not found else None


def builtins_of(function: Any) -> Any:
    """What a function has as builtins: Python's own, unless whoever made it has chosen others."""
    return function.__builtins__


def is_exported(method: Any) -> bool:
    """Whether a library's module offers this method of an instance of its own: `random.random`, `numpy.random.rand`."""
    module = sys.modules.get(str(type(method.__self__).__module__))
    if module is None or module.__name__ == "__main__":
        return False
    offered = vars(module).get(getattr(method, "__name__", ""))
    return type(offered) is type(method) and bool(offered == method)


def is_registered(logger: logging.Logger) -> bool:
    """Whether it is the logger of its name; it leads to all others, and to their streams."""
    return logger is logging.root or logging.root.manager.loggerDict.get(logger.name) is logger


def is_array(kind: type) -> bool:
    """Whether it is a type of NumPy's arrays, or of records of one."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.ndarray, numpy.void))


def held_by_array(thing: Any) -> list[Any]:
    """What an array of objects of NumPy's holds; the garbage collector does not see into it. Nothing for all else."""
    if not is_array(type(thing)):
        return []
    numpy = sys.modules["numpy"]
    kind = numpy.ndarray if issubclass(type(thing), numpy.ndarray) else numpy.generic
    dtype = kind.dtype.__get__(thing)
    if not dtype.hasobject:
        return []
    # An element of several fields would be seen as a new array of them, without end.
    return (
        [kind.item(thing)]
        if kind is numpy.generic
        else list(kind.flat.__get__(thing))
        if dtype.kind == "O"
        else kind.tolist(thing)
    )


def _module_called(name: str) -> types.ModuleType | None:
    """A module of a package that is there; imported now where nobody did, as pickle does (`numpy.rec`)."""
    if name not in sys.modules and "." in name and name.partition(".")[0] in sys.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return sys.modules.get(name)


def importable(found: Any) -> bool:
    """Whether a class or function is saved as a reference to where it can be imported from."""
    if found.__module__ in {"__main__", None}:
        return False
    at: Any = _module_called(str(found.__module__))
    for part in found.__qualname__.split("."):
        at = getattr(at, part, None)
    return at is found


def owner_in_a_module(function: types.FunctionType) -> type | None:
    """The class of a module that can be imported which has a function as its class method or static method."""
    home, path = home_of(function), function.__qualname__.rpartition(".")[0]
    if home is None or not path:
        return None
    found: Any = sys.modules[home]
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not importable(found):
        return None
    method: Any = content_of(found).get(function.__name__)
    return found if type(method) in {classmethod, staticmethod} and method.__func__ is function else None


def is_found(function: types.FunctionType) -> bool:
    """As `importable`, also for what a class method or static method of a module consists of."""
    return importable(function) or owner_in_a_module(function) is not None


def is_found_builtin(function: types.BuiltinFunctionType) -> bool:
    """As `is_found`, for functions and methods written in C: of a module, or of a class such as `tuple.__new__`."""
    if importable(function) or is_exported(function):
        return True
    owner: Any = function.__self__
    return is_of(owner, type) and importable(owner)


def is_found_descriptor(descriptor: Any) -> bool:
    """As `is_found`, for those of a class."""
    return importable(descriptor.__objclass__)
