"""What annotations come back as: from Python 3.14 on a function finds them out as soon as somebody asks for them.

So they may name what is not there yet, and asking too early is an error. Those functions come back themselves. They
look for names in what their class has, a dict that only its class can give.
"""

from __future__ import annotations

import gc
import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import content_of, is_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_CLASSES: Final = "__annotate_func__"
_EACH_CLASS_HAS: Final = ("__module__", "__doc__")
_VALUES: Final = 1
_NAMES_ITS_CLASS: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)


def kept_by(function: types.FunctionType) -> tuple[str, Any]:
    """The attribute that says what a function's annotations are, and what it has.

    That is the function that finds them out, unless somebody has changed what it found.
    """
    annotate = getattr(function, "__annotate__", None)
    if annotate is None:
        return "__annotations__", function.__annotations__
    try:
        found = function.__annotations__
        as_found = bool(found == annotate(_VALUES))
    except Exception:  # noqa: BLE001 - it runs what the user has written
        return "__annotate__", annotate
    return ("__annotate__", annotate) if as_found else ("__annotations__", found)


def kept_by_class(kind: type) -> dict[str, Any]:
    """What a class has for that by its name, which cloudpickle leaves out."""
    return {name: value for name, value in content_of(kind).items() if name == _OF_CLASSES}


def without_any(function: types.FunctionType) -> types.FunctionType:
    """One that is as this one, for those who cannot but ask for annotations."""
    parts = function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    same = types.FunctionType(*parts)
    for name in ("__kwdefaults__", "__qualname__", "__module__", "__doc__"):
        setattr(same, name, getattr(function, name))
    vars(same).update(vars(function))
    return same


def class_with(content: Mapping[str, Any]) -> type | None:
    """The class that has exactly this dict; `None`: it is nobody's."""
    if any(name not in content for name in _EACH_CLASS_HAS):
        return None
    return next((kind for kind in _classes_near(content) if names_of(kind) is content), None)


def names_of(kind: type) -> Any:
    """The dict of what a class itself has, which is otherwise only shown."""
    return gc.get_referents(content_of(kind))[0]


def _classes_near(content: Mapping[str, Any]) -> Iterator[type]:
    """Those that what is in it tells of, and as a last resort all that refer to it, for which all objects are asked."""
    yield from (value.__objclass__ for value in content.values() if isinstance(value, _NAMES_ITS_CLASS))
    yield from (kind for kind in gc.get_referrers(content) if is_of(kind, type))
