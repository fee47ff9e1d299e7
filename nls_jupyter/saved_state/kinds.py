"""What classes and errors of other people say of themselves, read past whatever they do about being asked.

`isinstance` asks an object for its `__class__`, `kind.__module__` asks a metaclass, `str(error)` runs the error's own
code; each of them may raise anything. What looks at objects that it does not know asks here.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_T = TypeVar("_T")
_MODULE: Any = type.__dict__["__module__"]
_QUALNAME: Any = type.__dict__["__qualname__"]
_CONTENT: Any = type.__dict__["__dict__"]
_MRO: Any = type.__dict__["__mro__"]
_BASE: Any = type.__dict__["__base__"]


def is_of(thing: object, kind: type[_T]) -> TypeGuard[_T]:
    """As `isinstance`, by what an object is and not by what it says that it is."""
    return issubclass(type(thing), kind)


def module_of(kind: type) -> str:
    """The module that a class says it is of; empty where it says nothing of use."""
    try:
        found = _MODULE.__get__(kind)
    except AttributeError:
        return ""
    return found if type(found) is str else ""


def name_of(kind: type) -> str:
    """A class's name, with those of the classes and functions that it was made in."""
    name: str = _QUALNAME.__get__(kind)
    return name


def content_of(kind: type) -> Mapping[str, Any]:
    """What a class itself has, by name."""
    content: Mapping[str, Any] = _CONTENT.__get__(kind)
    return content


def line_of(kind: type) -> tuple[type, ...]:
    """A class and those that it inherits from, in the order in which they are asked."""
    line: tuple[type, ...] = _MRO.__get__(kind)
    return line


def maker_of(kind: type) -> type:
    """The one of those that it inherits from, or itself, whose `__new__` is written in C, and makes all instances."""
    while type(content_of(kind).get("__new__")) is not types.BuiltinFunctionType:
        kind = _BASE.__get__(kind)
    return kind


def owner_of(kind: type, name: str) -> type | None:
    """Who gives a class what it has under this name; nobody where it has nothing."""
    return next((base for base in line_of(kind) if name in content_of(base)), None)


def hash_of(kind: type) -> object:
    """What a class has for the hash of its instances, without asking that for anything (`unittest.mock` makes more)."""
    return next(content_of(base)["__hash__"] for base in line_of(kind) if "__hash__" in content_of(base))


def text_of(error: BaseException) -> str:
    """What an error says; empty where even that fails."""
    try:
        return "".join(str(error))
    except SaveEndsError:
        raise
    except BaseException:  # noqa: BLE001 - its type is left to be told
        return ""


def below(kind: type) -> Iterator[type]:
    """All classes that inherit from it by now."""
    found: type
    for found in kind.__subclasses__():
        yield found
        yield from below(found)
