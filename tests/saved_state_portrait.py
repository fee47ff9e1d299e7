"""A namespace in words: what its objects are, and which of them are one; equal words, equal namespaces.

Drawn by looking only: attributes, slots, contents, what a type itself says is its state. Two processes can compare.
"""

from __future__ import annotations

import array
import collections
import hashlib
import itertools
import re
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range)
_METHODS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
_OF_CLASSES = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
_ADDRESS = re.compile(r"0x[0-9a-f]+|\bid=\d+")
_MOST_NODES = 4000
_MOST_STEPS = 5
_NOT_CONTENT = {
    *("__dict__", "__weakref__", "__class__", "__abstractmethods__", "__signature__", "__doc__"),
    *("_cdata", "_version", "_base", "base", "__slotnames__"),  # where memory lies, how often it was written to
    *("_is_consolidated", "_known_consolidated"),  # what pandas found out about its blocks so far
}
_OWN_WAYS = ("__reduce_ex__", "__reduce__", "__getstate__")


def portrait(names: dict[str, Any]) -> list[str]:
    """One line for each object that the names lead to, in the order in which they are met."""
    return _Portrait().draw(names)


class _Portrait:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._things: list[Any] = []  # kept, so that no number means two objects

    def draw(self, names: dict[str, Any]) -> list[str]:
        lines = [self._line(sorted(names.items()))]
        position = 0
        while position < len(self._things) and position < _MOST_NODES:
            thing = self._things[position]
            lines.append(f"{position} {name_of(type(thing))}: {self._line(self._parts(thing))}")
            position += 1
        lines.append(f"memory: {_shared_memory(self._things)}")
        for number, thing in enumerate(self._things[:_MOST_NODES]):  # at the very end: it changes them
            if _is_iterator(thing):
                lines.append(f"{number} next: {self._line((str(n), step) for n, step in enumerate(_steps(thing)))}")
        return lines

    def _line(self, parts: Any) -> str:
        try:
            return ", ".join(f"{label}={self._word(part)}" for label, part in parts)
        except Exception as error:  # noqa: BLE001 - that it raises is what there is to see
            return f"raises {type(error).__name__}"

    def _word(self, thing: Any) -> str:
        if type(thing) in _ATOMS:
            return f"{type(thing).__name__} {thing!r}" if not isinstance(thing, bytes) else f"bytes {_digest(thing)}"
        if type(type(thing)).__name__ == "_DTypeMeta" or _is_immutable(thing):
            return f"{name_of(type(thing))} {thing!r}"
        if (found := _imported(thing)) is not None:
            return found
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self._things)
            self._things.append(thing)
        return f"#{self._numbers[id(thing)]}"

    def _parts(self, thing: Any) -> Iterator[tuple[str, Any]]:
        """What an object consists of, by label."""
        yield from _content(thing)
        try:
            attributes = object.__getattribute__(thing, "__dict__")
        except AttributeError:
            attributes = None
        if attributes and all(getattr(type(thing), way) is getattr(object, way) for way in _OWN_WAYS):
            yield "__dict__", attributes
        elif id(attributes) in self._numbers:  # it has a name of its own
            yield "attributes", f"#{self._numbers[id(attributes)]}"
        if not isinstance(
            thing,
            (
                *_METHODS,
                *_OF_CLASSES,
                type,
                types.FunctionType,
                types.MappingProxyType,
                dict,
                list,
                tuple,
                set,
                frozenset,
            ),
        ):
            yield from _slots(thing)
            if not _is_tensor(thing):
                yield from _own_words(thing)


def _is_immutable(thing: Any) -> bool:
    numpy = sys.modules.get("numpy")
    scalar = numpy is not None and isinstance(thing, numpy.generic) and not isinstance(thing, numpy.void)
    return scalar or name_of(type(thing)) == "torch.Size"


def name_of(kind: type) -> str:
    """A type's module and name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _digest(content: Any) -> str:
    return f"{len(content)} {hashlib.sha1(content, usedforsecurity=False).hexdigest()}"


def _imported(thing: Any) -> str | None:
    """Where a module, class or function can be imported from; then it is the same in each process."""
    if isinstance(thing, types.ModuleType):
        return f"module {thing.__name__}"
    if not isinstance(thing, (type, types.FunctionType, types.BuiltinFunctionType)):
        return None
    at: Any = sys.modules.get(str(thing.__module__))
    for part in thing.__qualname__.split("."):
        at = getattr(at, part, None)
    return f"{thing.__module__}.{thing.__qualname__}" if at is thing else None


def _content(thing: Any) -> Iterator[tuple[str, Any]]:
    for kinds, content in _CONTENTS:
        if isinstance(thing, kinds):
            yield from content(thing)
            return
    if type(thing).__module__.partition(".")[0] in {"numpy", "torch"}:
        yield from _arrays(thing)


def _of_sequence(thing: Any) -> Iterator[tuple[str, Any]]:
    base = next(each for each in (list, tuple, collections.deque) if isinstance(thing, each))
    yield from ((str(number), part) for number, part in enumerate(base.__iter__(thing)))


def _of_mapping(thing: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    ordered = isinstance(thing, collections.OrderedDict)
    items = collections.OrderedDict.items(thing) if ordered else dict.items(thing)
    for number, (key, value) in enumerate(items):
        yield f"key{number}", key
        yield f"value{number}", value


def _of_proxy(thing: types.MappingProxyType[Any, Any]) -> Iterator[tuple[str, Any]]:
    if "__module__" in thing:  # a class's, whose order says nothing
        yield from sorted((name, part) for name, part in thing.items() if name not in _NOT_CONTENT)
    else:
        yield "of", dict(thing)


def _of_set(thing: Any) -> Iterator[tuple[str, Any]]:
    base: Any = set if isinstance(thing, set) else frozenset
    yield from (("in", part) for part in sorted(base.__iter__(thing), key=_text))


def _of_function(thing: types.FunctionType) -> Iterator[tuple[str, Any]]:
    parts = ("__qualname__", "__defaults__", "__kwdefaults__", "__closure__")
    yield from ((part, getattr(thing, part)) for part in parts)
    yield "code", _digest(thing.__code__.co_code)


def _of_class(thing: type) -> Iterator[tuple[str, Any]]:
    yield from (("base", base) for base in thing.__bases__)
    yield from sorted((name, part) for name, part in vars(thing).items() if name not in _NOT_CONTENT)


def _of_error(thing: BaseException) -> Iterator[tuple[str, Any]]:
    yield from (("args", thing.args), ("cause", thing.__cause__), ("context", thing.__context__))
    yield "traceback", thing.__traceback__ is not None


def _plain(thing: Any) -> str:
    for base in (bool, int, float, complex, str, bytes):
        if isinstance(thing, base):
            return base.__repr__(thing)
    return repr(thing)


def _arrays(thing: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(thing, "__array_interface__"):
        yield "layout", repr((thing.dtype, thing.shape, getattr(thing, "strides", None)))
        if thing.dtype.hasobject:
            yield "values", thing.tolist()
        else:
            yield "bytes", _digest(thing.tobytes())
    if _is_tensor(thing):
        yield "layout", repr((thing.dtype, tuple(thing.shape), thing.layout, thing.requires_grad))
        yield "values", repr(thing.detach())
        yield "grad", thing.grad


def _shared_memory(things: list[Any]) -> str:
    """Which arrays and tensors show memory that others show, too."""
    spans = []
    for number, thing in enumerate(things):
        if type(thing).__module__.partition(".")[0] == "numpy" and isinstance(thing, sys.modules["numpy"].ndarray):
            low, high = sys.modules["numpy"].lib.array_utils.byte_bounds(thing)
            spans.append((low, high if thing.size else low, number))
        elif _is_tensor(thing) and thing.layout is sys.modules["torch"].strided and thing.device.type == "cpu":
            low = thing.data_ptr()
            spans.append((low, low + thing.numel() * thing.itemsize, number))
    pairs = itertools.combinations(spans, 2)
    return " ".join(f"{one}={two}" for (a, b, one), (c, d, two) in pairs if a < d and c < b and a < b and c < d)


def _is_tensor(thing: Any) -> bool:
    return type(thing).__module__.startswith("torch") and type(thing).__name__ in {"Tensor", "Parameter"}


def _slots(thing: Any) -> Iterator[tuple[str, Any]]:
    """Python's slots and C's members; of what C computes only the plain values, since it is made anew each time."""
    for base in type(thing).__mro__[:-1]:
        for name, descriptor in sorted(vars(base).items()):
            is_slot = isinstance(descriptor, types.MemberDescriptorType)
            if name in _NOT_CONTENT or not (is_slot or isinstance(descriptor, (types.GetSetDescriptorType, property))):
                continue
            try:
                value = descriptor.__get__(thing, type(thing))
            except Exception as error:  # noqa: BLE001 - as above
                value = f"raises {type(error).__name__}"
            if is_slot and not isinstance(value, str):
                yield name, value
            elif type(value) in _ATOMS:
                yield name, _ADDRESS.sub("0x", repr(value))


def _own_words(thing: Any) -> Iterator[tuple[str, Any]]:
    """What its type calls its state, or how it shows itself."""
    if isinstance(thing, types.GeneratorType):
        return
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - many say so of themselves
        yield "repr", _text(thing)
        return
    if isinstance(reduced, str):
        yield "name", reduced
        return
    yield from ((f"made{number}", part) for number, part in enumerate(reduced[1]))
    if len(reduced) > 2 and reduced[2] is not None:
        if isinstance(reduced[2], dict):
            yield from ((str(key), part) for key, part in reduced[2].items())
        else:
            yield "state", reduced[2]
    for number, parts in enumerate(reduced[3:5]):
        yield f"items{number}", list(parts or ())


def _text(thing: Any) -> str:
    try:
        return _ADDRESS.sub("0x", repr(thing))[:2000]
    except Exception as error:  # noqa: BLE001 - as above
        return f"raises {type(error).__name__}"


def _is_iterator(thing: Any) -> bool:
    kind = type(thing)
    return hasattr(kind, "__next__") and hasattr(kind, "__iter__") and not isinstance(thing, types.GeneratorType)


def _steps(thing: Any) -> list[Any]:
    try:
        return list(itertools.islice(thing, _MOST_STEPS))
    except Exception as error:  # noqa: BLE001 - as above
        return [f"raises {type(error).__name__}"]


_CONTENTS: tuple[tuple[Any, Any], ...] = (
    ((bytearray, memoryview), lambda thing: [("bytes", _digest(bytes(thing)))]),
    (array.array, lambda thing: [("bytes", _digest(thing.tobytes()))]),
    (_ATOMS, lambda thing: [("value", _plain(thing))]),
    (types.MappingProxyType, _of_proxy),
    (dict, _of_mapping),
    ((list, tuple, collections.deque), _of_sequence),
    ((set, frozenset), _of_set),
    (_METHODS, lambda thing: [("name", getattr(thing, "__name__", "?")), ("self", thing.__self__)]),
    (_OF_CLASSES, lambda thing: [("name", thing.__name__), ("of", thing.__objclass__)]),
    (weakref.ref, lambda thing: [("to", thing())]),
    (types.FunctionType, _of_function),
    (type, _of_class),
    (BaseException, _of_error),
)
