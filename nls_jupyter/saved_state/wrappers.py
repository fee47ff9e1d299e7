"""Small wrappers of the standard library that pickle refuses, or takes for something else."""

from __future__ import annotations

import abc
import collections
import functools
import gc
import itertools
import operator
import queue
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import sentinels
from nls_jupyter.saved_state.kinds import module_of
from nls_jupyter.saved_state.looks import Look, attributes_of, importable
from nls_jupyter.saved_state.reducers import set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_jupyter.saved_state.regions import Regions


_OVER: tuple[dict[Any, Any], ...] = ({}, collections.OrderedDict())
_GONE_OVER: tuple[Any, ...] = tuple(part for some in _OVER for part in (some, some.values(), some.items()))
# Views of dicts, by their type: the kind of dict, and what its method for them is called.
_VIEWS: dict[type, tuple[type, str]] = {
    type(getattr(over, name)()): (type(over), name) for over in _OVER for name in ("keys", "values", "items")
}
_CACHED: type = type(functools.cache(len))
# These find their place again only in the very object that they go over.
_BARE_ITERATORS = (type(iter(set())), *(type(way(over)) for over in _GONE_OVER for way in (iter, reversed)))


def handlers(regions: Regions) -> dict[type, Callable[[Any], Any] | None]:
    """Reducers per exact type, as a library's."""
    return {
        weakref.ref: _reduce_reference,
        **dict.fromkeys(weakref.ProxyTypes, _reduce_proxy),
        weakref.WeakKeyDictionary: lambda weak: (weakref.WeakKeyDictionary, (), None, None, iter(list(weak.items()))),
        weakref.WeakValueDictionary: lambda weak: (
            weakref.WeakValueDictionary,
            (),
            None,
            None,
            iter(list(weak.items())),
        ),
        weakref.WeakSet: lambda weak: (weakref.WeakSet, (list(weak),)),
        _CACHED: functools.partial(_reduce_cache, regions.note),
        functools.cached_property: _reduce_cached_property,
        **dict.fromkeys(
            (staticmethod, abc.abstractstaticmethod, classmethod, abc.abstractclassmethod), _reduce_method_wrapper
        ),
        abc.abstractproperty: lambda found: (abc.abstractproperty, (found.fget, found.fset, found.fdel, found.__doc__)),
        types.MappingProxyType: sentinels.by_name(
            types.MappingProxyType, lambda proxy: (types.MappingProxyType, tuple(gc.get_referents(proxy)))
        ),
        queue.SimpleQueue: lambda line: (queue.SimpleQueue, (), (_waiting_in(line),), None, None, _line_up),
        memoryview: functools.partial(_reduce_view, regions.note),
        **dict.fromkeys(_VIEWS, functools.partial(_reduce_dict_view, regions.note)),
        **dict.fromkeys(_BARE_ITERATORS, functools.partial(_reduce_iterator, regions.note)),
        itertools.groupby: functools.partial(_reduce_groups, regions.note),
        itertools.count: lambda counting: (itertools.count, counted_by(counting)),
        itertools.repeat: lambda again: (itertools.repeat, _repeated_by(again)),
        threading.local: _reduce_thread_local,
    }


def lookers() -> dict[type, Callable[[Any], Look | None]]:
    """How a walk sees them: what is only weakly held belongs together too, or it would be two objects."""
    return {
        weakref.ref: lambda reference: Look(children=(reference(), reference.__callback__)),
        **dict.fromkeys(weakref.ProxyTypes, lambda proxy: Look(children=(_behind_proxy(proxy),))),
        weakref.WeakKeyDictionary: lambda weak: Look(
            children=tuple(part for item in list(weak.items()) for part in item)
        ),
        weakref.WeakValueDictionary: lambda weak: Look(
            children=tuple(part for item in list(weak.items()) for part in item)
        ),
        weakref.WeakSet: lambda weak: Look(children=tuple(weak)),
        types.MappingProxyType: lambda proxy: Look(children=tuple(gc.get_referents(proxy))),
        queue.SimpleQueue: lambda line: Look(children=tuple(_waiting_in(line))),
        **dict.fromkeys(_VIEWS, _look_at_dict_view),
        functools.cached_property: lambda found: Look(children=attributes_of(found)),
        itertools.count: lambda counting: Look(children=counted_by(counting)),
        itertools.repeat: lambda again: Look(children=_repeated_by(again)),
        itertools.zip_longest: lambda rows: Look(children=_zipped_by(rows), is_opaque=True),
        threading.local: lambda values: Look(children=tuple(vars(values).values())),
    }


def counted_by(counting: itertools.count[Any]) -> tuple[Any, ...]:
    """What one is made of that goes on as this does; from Python 3.14 on `itertools` does not say it."""
    parts = tuple(part for part in gc.get_referents(counting) if part is not itertools.count)
    # What is counted by one with numbers of a machine's size is not kept as objects.
    return parts if len(parts) > 1 else (int(repr(counting).removeprefix("count(").removesuffix(")")),)


def _repeated_by(again: itertools.repeat[Any]) -> tuple[Any, ...]:
    what = next((part for part in gc.get_referents(again) if part is not itertools.repeat), itertools.repeat)
    left = operator.length_hint(again, -1)  # what is without end has none
    return (what,) if left < 0 else (what, left)


def _zipped_by(rows: itertools.zip_longest[Any]) -> tuple[Any, ...]:
    """What it goes over, what it fills with, and the last row.

    Its tuple of what it goes over has a hole where that has ended (CPython, `zip_longest_next`): code in Python that
    goes over such a tuple ends the process. The collector passes holes by.
    """
    over, *others = (part for part in gc.get_referents(rows) if part is not itertools.zip_longest)
    return (*gc.get_referents(over), *others)


def _reduce_reference(reference: weakref.ref[Any]) -> Any:
    if (target := reference()) is None:
        return _dead_reference, ()
    return weakref.ref, (target, *((reference.__callback__,) if reference.__callback__ is not None else ()))


def _waiting_in(line: queue.SimpleQueue[Any]) -> list[Any]:
    """What is in a queue that cannot be asked: until Python 3.12 at the end of a list of its own."""
    *inside, _ = gc.get_referents(line)  # its class comes last
    return inside if sys.version_info >= (3, 13) else inside[0][len(inside[0]) - line.qsize() :]


def _line_up(line: queue.SimpleQueue[Any], content: tuple[list[Any]]) -> None:
    for item in content[0]:
        line.put(item)


def _reduce_proxy(proxy: Any) -> Any:
    """Raises ReferenceError for one whose object is gone."""
    return weakref.proxy, (_behind_proxy(proxy),)


def _behind_proxy(proxy: Any) -> Any:
    """A proxy passes on even this, so the method is its object's own. One that Python code replaced tells it, too."""
    return proxy.__reduce_ex__.__self__


def _dead_reference() -> Any:
    return weakref.ref(_Passing())


class _Passing:
    """Gone as soon as it is made."""


def _reduce_cache(note: Callable[[str], None], cached: Any) -> Any:
    if importable(cached):
        return NotImplemented
    if cached.cache_info().currsize:
        note("a cached function's cache comes back empty")
    parameters = cached.cache_parameters()
    attributes = {
        name: value for name, value in vars(cached).items() if name not in {"cache_parameters", "__wrapped__"}
    }
    return (
        _cached,
        (cached.__wrapped__, parameters["maxsize"], parameters["typed"]),
        attributes,
        None,
        None,
        set_attributes,
    )


def _cached(function: Any, maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001 - called by the unpickler
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_method_wrapper(found: Any) -> Any:
    return type(found), (found.__func__,), dict(vars(found)), None, None, _set_only


def _set_only(found: Any, attributes: dict[str, Any]) -> None:
    """What it takes from its function as it is made, it need not have had: the `__new__` of a class has nothing."""
    vars(found).clear()
    set_attributes(found, attributes)


def _reduce_cached_property(found: functools.cached_property[Any]) -> Any:
    state = {name: value for name, value in vars(found).items() if name not in {"func", "lock"}}
    return functools.cached_property, (found.func,), state, None, None, set_attributes


def _reduce_thread_local(values: threading.local) -> Any:
    """With what cells see of it; other threads end, and theirs with them."""
    if threading.current_thread() is not threading.main_thread():
        return NotImplemented
    return threading.local, (), vars(values) or None, None, None, set_attributes


def _reduce_iterator(note: Callable[[str], None], _: Any) -> Any:
    note("an iterator over a dict or a set comes back with a list of what it had before it")
    return NotImplemented


def _reduce_groups(note: Callable[[str], None], groups: Any) -> Any:
    """Once an element of a group was taken, it has the group's key and no next element, and pickle not even that."""
    # Since Python 3.12 its class is among them.
    left, _, *found = (one for one in gc.get_referents(groups) if one is not itertools.groupby)
    is_used_up = module_of(type(left)) == "builtins" and not operator.length_hint(left, 1)
    if len(found) == 1 and not is_used_up:
        note("groupby in the middle of a group comes back with the rest of it as a group to come")
    return NotImplemented


def _is_of_code(view: Any) -> bool:
    """Whether it is of the dict of a module or a class, which is not the notebook's."""
    (owner,) = gc.get_referents(view)
    return any(dict.__contains__(owner, name) for name in ("__module__", "__builtins__", "__spec__"))


def _look_at_dict_view(view: Any) -> Look | None:
    return None if _is_of_code(view) else Look(children=tuple(gc.get_referents(view)))


def _reduce_dict_view(note: Callable[[str], None], view: Any) -> Any:
    if _is_of_code(view):
        note("a view of a module's or a class's names comes back with a list of them")
        return NotImplemented
    return _dict_view, (*_VIEWS[type(view)], *gc.get_referents(view))


def _dict_view(kind: type, name: str, owner: Any) -> Any:
    return getattr(kind, name)(owner)


def _reduce_view(note: Callable[[str], None], view: memoryview) -> Any:
    """A view of all of somebody's bytes stays one; of any other a copy is kept."""
    owner = view.obj
    if isinstance(owner, (bytes, bytearray)) and view.format == "B" and view.shape == (len(owner),):
        return _view, (owner, view.readonly)
    note("a memory view comes back with memory of its own")
    copy = view.tobytes() if view.readonly else bytearray(view.tobytes())
    return _cast_view, (copy, view.format, view.shape)


def _view(owner: bytes | bytearray, readonly: bool) -> memoryview:  # noqa: FBT001 - called by the unpickler
    return memoryview(owner).toreadonly() if readonly else memoryview(owner)


def _cast_view(content: bytes | bytearray, view_format: str, shape: list[int]) -> memoryview:
    whole = memoryview(content)
    return whole if view_format == "B" and len(shape) == 1 else whole.cast(view_format, shape)  # type: ignore[call-overload]
